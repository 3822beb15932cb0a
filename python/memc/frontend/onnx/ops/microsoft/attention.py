# SPDX-License-Identifier: Apache-2.0
"""Attention and QAttention: the projection to queries, keys and values in one product, and attention over those."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..matmul import product
from ..structure import cut
from .attention_core import Heads, attend, heads_first, heads_of, mask_of, past_and_present
from .domain import FLOAT, INT, INTS, microsoft, require_float, require_rank, require_shape
from .linear import centred, number
from .quantized_matmul import columns, less_zero, require_matrices, scaled


def _require_projection(ctx: NodeContext) -> int:
    """How many columns the weights of the projection have."""
    width = require_rank(ctx, 0, 3, "an input")[2]
    rows, total = require_rank(ctx, 1, 2, "weights")
    if rows != width:
        raise ctx.unsupported(f"expected weights with {width} rows, got {ctx.type(1)}")
    return total


def _sizes(ctx: NodeContext, total: int) -> tuple[int, int, int]:
    """The columns of queries, keys and values."""
    given = tuple(int(v) for v in ctx.attr("qkv_hidden_sizes", ()))
    sizes = given or (total // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != total or sizes[0] != sizes[1] or min(sizes) < 1:
        raise ctx.unsupported(f"expected equal columns of q and k, and {total} with those of v, got {list(sizes)}")
    return sizes[0], sizes[1], sizes[2]


def _over(ctx: NodeContext, projected: Value, mask: int, past: int, bias: int | None) -> Sequence[Known]:
    """Attention over the projected queries, keys and values, side by side, and `present` if it is asked for."""
    if ctx.attr("do_rotary", 0):
        raise ctx.unsupported("do_rotary 1")
    if ctx.attr("past_present_share_buffer", 0):
        raise ctx.unsupported("past_present_share_buffer 1")
    heads, parts, start = heads_of(ctx), [], 0
    for size in _sizes(ctx, projected.type.shape[2]):
        parts.append(heads_first(ctx, cut(ctx, projected, {2: (start, start + size, 1)}), heads))
        start += size
    k, v, present = past_and_present(ctx, past, parts[1], parts[2])
    found = Heads(parts[0], k, v)
    result, _ = attend(ctx, found, mask_of(ctx, found, mask, bool(ctx.attr("unidirectional", 0)), bias))
    return [result] if present is None else [result, present]


@microsoft(
    "Attention",
    inputs=(2, 7),
    outputs=2,
    required=("num_heads",),
    do_rotary=INT,
    mask_filter_value=FLOAT,
    num_heads=INT,
    past_present_share_buffer=INT,
    qkv_hidden_sizes=INTS,
    rotary_embedding_dim=INT,
    scale=FLOAT,
    unidirectional=INT,
)
def attention(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: x, weights, bias, mask, past, attention bias, length of the past in a shared buffer."""
    b = ctx.b
    require_float(ctx, 0, 1, 2, 4, 5)
    total = _require_projection(ctx)
    if ctx.has(4) and ctx.has(5):
        raise ctx.unsupported("a past and an attention_bias together")
    if ctx.has(6):
        raise ctx.unsupported("input past_sequence_length, of a past in a shared buffer")
    projected = product(b, ctx.value(0), ctx.value(1))
    if ctx.has(2):
        require_shape(ctx, 2, (total,), "a bias")
        projected = b.op("add", [projected, ctx.value(2)])
    return _over(ctx, projected, 3, 4, 5)


@microsoft(
    "QAttention",
    inputs=(5, 9),
    outputs=2,
    required=("num_heads",),
    do_rotary=INT,
    mask_filter_value=FLOAT,
    num_heads=INT,
    past_present_share_buffer=INT,
    scale=FLOAT,
    unidirectional=INT,
)
def qattention(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: x, weights, bias, scales of x and weights, mask, zero points of x and weights, past."""
    b, dtype = ctx.b, require_float(ctx, 2, 3, 4, 8)
    require_rank(ctx, 0, 3, "an input")
    require_matrices(ctx, 0, 1)
    require_shape(ctx, 2, (_require_projection(ctx),), "a bias")
    total = b.op("matmul", [centred(ctx, 0, 6), less_zero(ctx, 1, 7)], transpose_a=False, transpose_b=False)
    of_weights = cast(b, columns(ctx, 4, ctx.type(1).shape), DType.F32)
    factor = b.op("mul", [cast(b, number(ctx, 3), DType.F32), of_weights])
    return _over(ctx, cast(b, scaled(ctx, total, factor, 2), dtype), 5, 8, None)
