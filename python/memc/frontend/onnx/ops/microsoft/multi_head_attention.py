# SPDX-License-Identifier: Apache-2.0
"""MultiHeadAttention: attention over queries, keys and values that are projected before."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value

from ...context import Known, NodeContext
from ..reduction import wants
from .attention_core import Heads, after, attend, heads_first, heads_of, mask_of
from .domain import FLOAT, INT, microsoft, require_float, require_rank, require_shape


def _biased(ctx: NodeContext, index: int, start: int) -> Value:
    """Input `index` [batch, positions, columns] plus its part of the bias, input 3, from column `start` on."""
    x = ctx.value(index)
    if not ctx.has(3):
        return x
    stop = start + x.type.shape[2]
    part = ctx.b.op("slice", [ctx.value(3)], starts=(start,), stops=(stop,), steps=(1,))
    return ctx.b.op("add", [x, part])


def _check(ctx: NodeContext) -> None:
    """Refuse the variants that onnxruntime has no kernel of on the CPU."""
    require_float(ctx, 0, 1, 2, 3, 5, 6, 7)
    if ctx.type(0).rank == 5 or not ctx.has(1):
        raise ctx.unsupported(f"packed queries, keys and values {ctx.type(0)}")
    if ctx.type(1).rank == 5 or not ctx.has(2):
        raise ctx.unsupported(f"packed keys and values {ctx.type(1)}")
    if ctx.has(8) or ctx.has(9):
        raise ctx.unsupported("inputs past_sequence_length and cache_indirection, of a past in a shared buffer")
    if ctx.has(6) != ctx.has(7):
        raise ctx.unsupported("expected past_key and past_value, or neither")
    batch, _, width = require_rank(ctx, 0, 3, "queries")
    k, v = ctx.type(1), ctx.type(2)
    if k.rank not in (3, 4) or v.rank != k.rank or k.shape[0] != batch or v.shape[0] != batch:
        raise ctx.unsupported(f"expected keys and values of rank 3 or 4 for {batch} sequences, got {k} and {v}")
    if k.rank == 4 and (ctx.has(6) or k.shape != v.shape):
        raise ctx.unsupported(f"keys {k} and values {v} of rank 4 with a past or of different shapes")
    if k.rank == 3 and (k.shape[2] != width or v.shape[1] != k.shape[1]):
        raise ctx.unsupported(f"expected keys with {width} columns and as many values, got {k} and {v}")
    if ctx.has(3):
        require_shape(ctx, 3, (2 * width + (v.shape[2] if v.rank == 3 else v.shape[1] * v.shape[3]),), "a bias")


@microsoft(
    "MultiHeadAttention",
    inputs=(1, 10),
    outputs=4,
    required=("num_heads",),
    mask_filter_value=FLOAT,
    num_heads=INT,
    scale=FLOAT,
    unidirectional=INT,
)
def multi_head_attention(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: q, k, v, bias, mask, attention bias, past keys, past values, and two of a past in a shared buffer."""
    _check(ctx)
    heads, width = heads_of(ctx), ctx.type(0).shape[2]
    q = heads_first(ctx, _biased(ctx, 0, 0), heads)
    if ctx.type(1).rank == 4:
        # Keys and values of a cross attention, projected and split in an earlier step.
        k, v = ctx.value(1), ctx.value(2)
    else:
        k, v = (heads_first(ctx, _biased(ctx, i, i * width), heads) for i in (1, 2))
    new = k.type.shape[2]
    if ctx.has(6):
        batch, count, _, columns = k.type.shape
        length = require_rank(ctx, 6, 4, "past keys")[2]
        require_shape(ctx, 6, (batch, count, length, columns), "past keys")
        require_shape(ctx, 7, (batch, count, length, v.type.shape[3]), "past values")
        k, v = after(ctx, ctx.value(6), k), after(ctx, ctx.value(7), v)
    found = Heads(q, k, v)
    if k.type.shape[:2] != q.type.shape[:2] or k.type.shape[3] != q.type.shape[3]:
        raise ctx.unsupported(f"expected keys for the heads {q.type}, got {k.type}")
    causal = bool(ctx.attr("unidirectional", 0))
    if causal and new != q.type.shape[2]:
        raise ctx.unsupported(f"unidirectional with {q.type.shape[2]} queries and {new} keys")
    result, scores = attend(ctx, found, mask_of(ctx, found, 4, causal, 5))
    present: list[Known] = [k, v] if wants(ctx, 1) or wants(ctx, 2) or wants(ctx, 3) else []
    return [result, *present, scores] if wants(ctx, 3) else [result, *present]
