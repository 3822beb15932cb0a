# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention: one op in inference; in training products around a softmax, of which `build-gradient` makes
one op again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, converts
from .elementwise import number
from .matmul import product
from .views import reshaped


@converts("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(ctx: NodeContext) -> Value:
    q, k, v = (ctx.value(name) for name in ("query", "key", "value"))
    given = next((name for name in ("attn_mask", "attn_bias") if ctx.has(name)), None)
    mask = ctx.value(given) if given else None
    ratio = float(ctx.get("dropout_p", 0.0))
    scale = ctx.get("scale")
    scale = 1 / math.sqrt(q.type.shape[-1]) if scale is None else float(scale)
    causal = bool(ctx.get("is_causal", False))
    blind = _blind_rows(ctx, mask) if mask is not None else None
    if ctx.trainable or ratio:
        # Such rows see all, so that gradients are numbers, too.
        mask = _seeing(ctx, mask, blind) if mask is not None and blind is not None else mask
        found = _written_out(ctx, (q, k, v), mask, (scale, causal, ratio))
    else:
        found = attention(ctx, (q, k, v), mask, scale, causal)
    return found if blind is None else ctx.b.op("select", [blind, number(ctx, 0, found), found])


def _blind_rows(ctx: NodeContext, mask: Value) -> Value:
    """Where a mask hides every key: the result is 0 there, as in PyTorch, not the nan of a softmax of nothing."""
    b = ctx.b
    most = b.op("reduce_max", [mask], axes=(mask.type.rank - 1,), keepdims=True)
    if mask.type.dtype is DType.BOOL:
        return b.op("logical_not", [most])
    return b.op("equal", [most, number(ctx, -math.inf, most)])


def _seeing(ctx: NodeContext, mask: Value, blind: Value) -> Value:
    """A mask whose blind rows see every key."""
    if mask.type.dtype is DType.BOOL:
        return ctx.b.op("logical_or", [mask, blind])
    return ctx.b.op("select", [blind, number(ctx, 0, mask), mask])


@converts(
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_flash_attention.default",
)
def chosen_attention(ctx: NodeContext) -> Sequence[Value]:
    """What decompositions choose, whose further results no inference reads."""
    return [scaled_dot_product_attention(ctx)]


def attention(
    ctx: NodeContext, heads: tuple[Value, Value, Value], mask: Value | None, scale: float, causal: bool
) -> Value:
    """The op, on the last two axes. A row that sees no key is nan; `scaled_dot_product_attention` makes it 0."""
    q, k, v = heads
    b, rank = ctx.b, q.type.rank
    if k.type.rank != rank or v.type.rank != rank:
        return _written_out(ctx, heads, mask, (scale, causal, 0.0))
    shapes = [x.type.shape[:-2] for x in heads]
    if shapes[1] != shapes[2] or any(n % m for n, m in zip(shapes[0], shapes[1])):
        return _written_out(ctx, heads, mask, (scale, causal, 0.0))
    if rank > 2 and shapes[0][:-1] != shapes[1][:-1]:
        return _written_out(ctx, heads, mask, (scale, causal, 0.0))
    operands = [q, k, v]
    if mask is not None:
        given = mask if mask.type.dtype is DType.BOOL else cast(b, mask, q.type.dtype)
        operands.append(given)
    extra = {"diagonal": 0} if causal else {}
    return b.op("attention", operands, scale=scale, axis=rank - 2, **extra)


def _repeated(ctx: NodeContext, x: Value, heads: int) -> Value:
    """Heads of keys or values, each as often as it takes for `heads` of them."""
    b = ctx.b
    *lead, count, positions, columns = x.type.shape
    if count == heads or not lead:
        return x
    apart = reshaped(b, x, (*lead, count, 1, positions, columns))
    spread = b.op("broadcast", [apart], shape=(*lead, count, heads // count, positions, columns))
    return reshaped(b, spread, (*lead, heads, positions, columns))


def _written_out(
    ctx: NodeContext,
    heads: tuple[Value, Value, Value],
    mask: Value | None,
    how: tuple[float, bool, float],
) -> Value:
    """softmax(scale q k^T + mask) v as ops."""
    b, (q, k, v), (scale, causal, ratio) = ctx.b, heads, how
    if q.type.rank > 2 and ctx.get("enable_gqa", False):
        k, v = (_repeated(ctx, x, q.type.shape[-3]) for x in (k, v))
    turned = b.op("transpose", [k], perm=(*range(k.type.rank - 2), k.type.rank - 1, k.type.rank - 2))
    scores = widen(b, product(ctx, q, turned))
    scores = b.op("mul", [scores, b.scalar(scale, scores.type.dtype)])
    if causal:
        queries, keys = scores.type.shape[-2:]
        late = np.triu(np.full((queries, keys), -np.inf), 1).astype(scores.type.dtype.numpy)
        scores = b.op("add", [scores, b.constant(late)])
    if mask is not None and mask.type.dtype is DType.BOOL:
        low = b.scalar(-math.inf, scores.type.dtype)
        mask = b.op("select", [mask, b.scalar(0, scores.type.dtype), low])
    if mask is not None:
        scores = b.op("add", [scores, cast(b, mask, scores.type.dtype)])
    weights = b.op("softmax", [scores], axis=scores.type.rank - 1)
    if ratio:
        seed, stream = ctx.draw()
        weights = b.op("dropout", [weights, seed], ratio=ratio, stream=stream)
    return cast(b, product(ctx, cast(b, weights, v.type.dtype), v), q.type.dtype)
