# SPDX-License-Identifier: Apache-2.0
"""Overloads that draw at random, in training steps: masks and numbers come from a counter of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ..context import NodeContext, converts


def dropped(ctx: NodeContext, x: Value, ratio: float) -> Value:
    """x with elements set to 0 at random, the others made larger."""
    b = ctx.b
    if ratio == 0:
        return x
    if ratio >= 1:
        return b.op("mul", [x, b.scalar(0, x.type.dtype)])
    seed, stream = ctx.draw()
    return b.op("dropout", [x, seed], ratio=ratio, stream=stream)


@converts("aten.dropout.default", "aten.feature_dropout.default")
def dropout(ctx: NodeContext) -> Value:
    x, ratio = ctx.value("input" if "input" in ctx.node.args else "self"), float(ctx.get("p", 0.5))
    if not ctx.get("train", False):
        return x
    if "feature" not in ctx.node.target:
        return dropped(ctx, x, ratio)
    lead = x.type.shape[:2]
    one = ctx.b.op("broadcast", [ctx.b.scalar(1, x.type.dtype)], shape=(*lead, *[1] * (x.type.rank - 2)))
    return ctx.b.op("mul", [x, dropped(ctx, one, ratio)])


@converts("aten.native_dropout.default")
def native_dropout(ctx: NodeContext) -> Sequence[Value]:
    b, x = ctx.b, ctx.value("input")
    ratio = float(ctx.get("p", 0.5)) if ctx.get("train", False) else 0.0
    ones = b.op("broadcast", [b.scalar(1, x.type.dtype)], shape=x.type.shape)
    mask = dropped(ctx, ones, ratio)
    return [b.op("mul", [x, mask]), b.op("not_equal", [mask, b.scalar(0, mask.type.dtype)])]


def uniform(ctx: NodeContext, shape: Sequence[int], dtype: DType) -> Value:
    """Numbers from 0 to below 1."""
    seed, stream = ctx.draw()
    wide = DType.F64 if dtype is DType.F64 else DType.F32
    found = ctx.b.op("random_uniform", [seed], shape=tuple(shape), dtype=wide, stream=stream)
    return cast(ctx.b, found, dtype)


@converts("aten.bernoulli.p", "aten.bernoulli.default", "aten.bernoulli.float")
def bernoulli(ctx: NodeContext) -> Value:
    """Ones with a probability, else zeros."""
    b, x = ctx.b, ctx.value("self")
    p = ctx.operand("p", DType.F32) if ctx.has("p") else cast(b, x, DType.F32)
    return cast(b, b.op("less", [uniform(ctx, x.type.shape, DType.F32), p]), x.type.dtype)


@converts("aten.rand.default", "aten.rand_like.default")
def rand(ctx: NodeContext) -> Value:
    shape = ctx.ints("size") if "size" in ctx.node.args else list(ctx.value("self").type.shape)
    return uniform(ctx, shape, ctx.out_dtype(DType.F32))


@converts("aten.randn.default", "aten.randn_like.default")
def randn(ctx: NodeContext) -> Value:
    shape = ctx.ints("size") if "size" in ctx.node.args else list(ctx.value("self").type.shape)
    seed, stream = ctx.draw()
    found = ctx.b.op("random_normal", [seed], shape=tuple(shape), dtype=DType.F32, stream=stream)
    return cast(ctx.b, found, ctx.out_dtype(DType.F32))


@converts("aten.uniform.default")
def uniform_node(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    low, high = float(ctx.get("from", 0)), float(ctx.get("to", 1))
    found = uniform(ctx, x.type.shape, x.type.dtype)
    if (low, high) == (0, 1):
        return found
    scaled = b.op("mul", [found, b.scalar(high - low, x.type.dtype)])
    return scaled if math.isclose(low, 0) else b.op("add", [scaled, b.scalar(low, x.type.dtype)])
