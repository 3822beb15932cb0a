# SPDX-License-Identifier: Apache-2.0
"""LinearAttention, unrolled over its tokens. Attention and RotaryEmbedding come from onnx's own function bodies."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen

_RULES = ("linear", "gated", "delta", "gated_delta")


def split_heads(ctx: NodeContext, index: int, heads: int) -> Value:
    """Input `index` [b, t, heads * d] as [b, heads, t, d], in at least f32."""
    x = widen(ctx.b, ctx.value(index))
    if x.type.rank != 3 or heads < 1 or x.type.shape[2] % heads:
        raise ctx.unsupported(f"expected [batch, tokens, {heads} * n], got {x.type}")
    batch, tokens, width = x.type.shape
    apart = ctx.b.op("reshape", [x], shape=(batch, tokens, heads, width // heads))
    return ctx.b.op("transpose", [apart], perm=(0, 2, 1, 3))


def _token(ctx: NodeContext, x: Value, position: int, shape: tuple[int, ...]) -> Value:
    """`x` [b, h, t, d] at one token, under another shape."""
    b, h, _, d = x.type.shape
    one = ctx.b.op("slice", [x], starts=(0, 0, position, 0), stops=(b, h, position + 1, d), steps=(1, 1, 1, 1))
    return ctx.b.op("reshape", [one], shape=shape)


@imports("LinearAttention")
def linear_attention(ctx: NodeContext) -> Sequence[Known]:
    """S = exp(g) S + beta k (v - S'k)', o = scale S'q for each token; the rule says which terms there are."""
    b = ctx.b
    rule = ctx.attr("update_rule", "gated_delta")
    heads, groups = int(ctx.attr("kv_num_heads", 0)), int(ctx.attr("q_num_heads", 0))
    if rule not in _RULES or heads < 1 or groups % heads:
        raise ctx.unsupported(f"update_rule {rule} with {groups} query and {heads} key heads")
    gated, corrected = "gated" in rule, "delta" in rule
    if gated != ctx.has(4) or corrected != ctx.has(5):
        raise ctx.unsupported(f"update_rule {rule}, which does not fit the inputs decay and beta given")
    q, k, v = split_heads(ctx, 0, groups), split_heads(ctx, 1, heads), split_heads(ctx, 2, heads)
    batch, _, tokens, dk = k.type.shape
    dv = v.type.shape[3]
    per_head = gated and ctx.type(4).shape[-1] in (heads, heads * dk)
    if gated and not per_head:
        raise ctx.unsupported(f"expected a decay with {heads} or {heads * dk} as last extent, got {ctx.type(4)}")
    decay = b.op("exp", [split_heads(ctx, 4, heads)]) if gated else None
    beta = split_heads(ctx, 5, ctx.type(5).shape[-1]) if corrected else None
    state_dtype = ctx.type(3).dtype if ctx.has(3) else ctx.type(0).dtype
    if ctx.has(3):
        state = cast(b, ctx.value(3), q.type.dtype)
    else:
        state = b.op("broadcast", [b.scalar(0, q.type.dtype)], shape=(batch, heads, dk, dv))
    factor = b.scalar(float(ctx.attr("scale", 0.0)) or 1 / sqrt(dk), q.type.dtype)
    outputs = []
    for position in range(tokens):
        column = _token(ctx, k, position, (batch, heads, dk, 1))
        row = _token(ctx, v, position, (batch, heads, 1, dv))
        if decay is not None:
            state = b.op("mul", [state, _token(ctx, decay, position, (batch, heads, decay.type.shape[3], 1))])
        if beta is not None:
            seen = b.op("matmul", [column, state], transpose_a=True, transpose_b=False)
            row = b.op("sub", [row, seen])
            row = b.op("mul", [row, _token(ctx, beta, position, (batch, beta.type.shape[1], 1, 1))])
        state = b.op("add", [state, b.op("mul", [column, row])])
        query = _token(ctx, q, position, (batch, heads, groups // heads, dk))
        found = b.op("mul", [b.op("matmul", [query, state], transpose_a=False, transpose_b=False), factor])
        outputs.append(b.op("reshape", [found], shape=(batch, 1, groups * dv)))
    joined = b.op("concat", outputs, axis=1) if len(outputs) > 1 else outputs[0]
    return [cast(b, joined, ctx.type(0).dtype), cast(b, state, state_dtype)]
