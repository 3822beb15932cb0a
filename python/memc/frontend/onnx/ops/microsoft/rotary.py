# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding: pairs of columns turned by angles that grow with the position."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen

from ...context import Known, NodeContext
from ..structure import cut, reshape
from .domain import FLOAT, INT, microsoft, require_float, require_rank


def rotated(ctx: NodeContext, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """`x` [..., heads, width] with its first columns turned.

    `cos` and `sin` [..., 1, half] belong to the pairs of the first 2 half columns; a pair is two neighbours if
    `interleaved`, else columns i and half + i.
    """
    b, half, width = ctx.b, cos.type.shape[-1], x.type.shape[-1]
    last = x.type.rank - 1
    part = cut(ctx, x, {last: (0, 2 * half, 1)})
    apart = (half, 2) if interleaved else (2, half)
    axis = last + 1 if interleaved else last
    pairs = b.op("reshape", [part], shape=(*x.type.shape[:-1], *apart))
    real, imaginary = (
        reshape(ctx, cut(ctx, pairs, {axis: (k, k + 1, 1)}), (*x.type.shape[:-1], half)) for k in range(2)
    )
    turned = [
        b.op("sub", [b.op("mul", [real, cos]), b.op("mul", [imaginary, sin])]),
        b.op("add", [b.op("mul", [real, sin]), b.op("mul", [imaginary, cos])]),
    ]
    if interleaved:
        columns = [b.op("reshape", [t], shape=(*t.type.shape, 1)) for t in turned]
        joined = b.op("reshape", [b.op("concat", columns, axis=last + 1)], shape=part.type.shape)
        return (
            joined
            if 2 * half == width
            else b.op("concat", [joined, cut(ctx, x, {last: (2 * half, width, 1)})], axis=last)
        )
    rest = [] if 2 * half == width else [cut(ctx, x, {last: (2 * half, width, 1)})]
    return b.op("concat", [*turned, *rest], axis=last)


def _angles(ctx: NodeContext, index: int, batch: int, tokens: int) -> Value:
    """The rows of a cache [positions, half] for each token: [batch or 1, tokens, 1, half], in at least f32."""
    b, table = ctx.b, ctx.value(index)
    ids = ctx.type(1)
    half = table.type.shape[1]
    if ids.shape == (batch, tokens):
        rows = b.op("gather", [table, ctx.value(1)], axis=0)
    elif ids.elements == 1 and ids.rank < 2:
        # One id is where the first token is.
        start = b.op("reshape", [ctx.value(1)], shape=(1,))
        steps = b.op("iota", [], shape=(tokens,), axis=0, dtype=ids.dtype)
        rows = b.op("gather", [table, b.op("add", [steps, start])], axis=0)
        batch = 1
    else:
        raise ctx.unsupported(f"expected position ids [1] or [{batch}, {tokens}], got {ids}")
    return widen(b, b.op("reshape", [rows], shape=(batch, tokens, 1, half)))


@microsoft(
    "RotaryEmbedding",
    inputs=(4, 4),
    interleaved=INT,
    is_packed_batching=INT,
    num_heads=INT,
    rotary_embedding_dim=INT,
    scale=FLOAT,
)
def rotary_embedding(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b
    dtype = require_float(ctx, 0, 2, 3)
    if ctx.attr("is_packed_batching", 0):
        raise ctx.unsupported("is_packed_batching 1")
    if float(ctx.attr("scale", 1.0)) != 1.0:
        raise ctx.unsupported(f"scale {ctx.attr('scale')}")
    half = require_rank(ctx, 2, 2, "a cache of cosines")[1]
    if ctx.type(3).shape != ctx.type(2).shape:
        raise ctx.unsupported(f"expected equal caches, got {ctx.type(2)} and {ctx.type(3)}")
    x = widen(b, ctx.value(0))
    if x.type.rank == 4:  # heads before tokens
        x = b.op("transpose", [x], perm=(0, 2, 1, 3))
    elif x.type.rank == 3:
        width = _head_width(ctx, half)
        batch, tokens, hidden = x.type.shape
        x = b.op("reshape", [x], shape=(batch, tokens, hidden // width, width))
    else:
        raise ctx.unsupported(f"expected an input of rank 3 or 4, got {x.type}")
    batch, tokens, _, width = x.type.shape
    if 2 * half > width or ctx.attr("rotary_embedding_dim", 0) not in (0, 2 * half):
        raise ctx.unsupported(f"caches {ctx.type(2)} for heads of {width} columns")
    cos, sin = (_angles(ctx, index, batch, tokens) for index in (2, 3))
    found = rotated(ctx, x, cos, sin, bool(ctx.attr("interleaved", 0)))
    if ctx.type(0).rank == 4:
        found = b.op("transpose", [found], perm=(0, 2, 1, 3))
    return [cast(b, reshape(ctx, found, ctx.type(0).shape), dtype)]


def _head_width(ctx: NodeContext, half: int) -> int:
    """Columns of a head of an input of rank 3."""
    hidden, heads = ctx.type(0).shape[2], int(ctx.attr("num_heads", 0))
    if not ctx.attr("rotary_embedding_dim", 0) and not heads:
        width = 2 * half
    elif heads > 0 and hidden % heads == 0:
        width = hidden // heads
    else:
        raise ctx.unsupported(f"expected num_heads that divides {hidden} with rotary_embedding_dim, got {heads}")
    if not width or hidden % width:
        raise ctx.unsupported(f"expected heads of {width} columns in {ctx.type(0)}")
    return width
