# SPDX-License-Identifier: Apache-2.0
"""Ops that draw at random: RandomUniform, RandomNormal, their Like forms, Bernoulli, Multinomial and Dropout.

All draw from one counter by a number of their own (`NodeContext.draw`), so that neither two nodes nor two runs draw the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Attr, Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from .elementwise import onnx_dtype


def _draws(ctx: NodeContext, name: str, shape: Sequence[int], dtype: DType) -> Value:
    """A tensor of random numbers by an op of the IR, of f64 for that and of f32 for other types."""
    seed, stream = ctx.draw()
    to = dtype if dtype is DType.F64 else DType.F32
    return ctx.b.op(name, [seed], shape=tuple(shape), dtype=to, stream=stream)


def _type(ctx: NodeContext, default: DType) -> DType:
    code = ctx.attr("dtype")
    return default if code is None else onnx_dtype(ctx, code)


def _floats(ctx: NodeContext, default: DType) -> DType:
    dtype = _type(ctx, default)
    if not dtype.is_float:
        raise ctx.unsupported(f"random numbers of {dtype.value}, expected a float type")
    return dtype


def _scaled(ctx: NodeContext, value: Value, factor: float, offset: float, dtype: DType) -> Value:
    """value * factor + offset in the type of `value`, rounded to `dtype`."""
    b = ctx.b
    if factor != 1:
        value = b.op("mul", [value, b.scalar(factor, value.type.dtype)])
    if offset != 0:
        value = b.op("add", [value, b.scalar(offset, value.type.dtype)])
    return cast(b, value, dtype)


def _uniform(ctx: NodeContext, shape: Sequence[int], dtype: DType) -> Sequence[Known]:
    low, high = float(ctx.attr("low", 0.0)), float(ctx.attr("high", 1.0))
    return [_scaled(ctx, _draws(ctx, "random_uniform", shape, dtype), high - low, low, dtype)]


def _normal(ctx: NodeContext, shape: Sequence[int], dtype: DType) -> Sequence[Known]:
    drawn = _draws(ctx, "random_normal", shape, dtype)
    return [_scaled(ctx, drawn, float(ctx.attr("scale", 1.0)), float(ctx.attr("mean", 0.0)), dtype)]


def _shape(ctx: NodeContext) -> tuple[int, ...]:
    shape = tuple(int(extent) for extent in ctx.attr("shape", ()))
    if any(extent < 0 for extent in shape):
        raise ctx.unsupported(f"expected a shape of extents from 0 on, got {list(shape)}")
    return shape


@imports("RandomUniform")
def random_uniform(ctx: NodeContext) -> Sequence[Known]:
    return _uniform(ctx, _shape(ctx), _floats(ctx, DType.F32))


@imports("RandomUniformLike")
def random_uniform_like(ctx: NodeContext) -> Sequence[Known]:
    return _uniform(ctx, ctx.type(0).shape, _floats(ctx, ctx.type(0).dtype))


@imports("RandomNormal")
def random_normal(ctx: NodeContext) -> Sequence[Known]:
    return _normal(ctx, _shape(ctx), _floats(ctx, DType.F32))


@imports("RandomNormalLike")
def random_normal_like(ctx: NodeContext) -> Sequence[Known]:
    return _normal(ctx, ctx.type(0).shape, _floats(ctx, ctx.type(0).dtype))


@imports("Bernoulli")
def bernoulli(ctx: NodeContext) -> Sequence[Known]:
    """1 where a number from 0 to below 1 is below the probability: always by 1, never by 0."""
    p = ctx.value(0)
    drawn = _draws(ctx, "random_uniform", p.type.shape, p.type.dtype)
    hit = ctx.b.op("less", [drawn, cast(ctx.b, p, drawn.type.dtype)])
    return [cast(ctx.b, hit, _type(ctx, p.type.dtype))]


@imports("Multinomial")
def multinomial(ctx: NodeContext) -> Sequence[Known]:
    """Classes by unnormalized log-probabilities: how many sums of the first probabilities a number from 0 to below their sum
    has passed. In f64, where the number stays below the sum, a class of probability 0 is never drawn."""
    b, x = ctx.b, ctx.value(0)
    count = int(ctx.attr("sample_size", 1))
    if x.type.rank != 2 or count < 1:
        raise ctx.unsupported(
            f"expected log-probabilities of rank 2 and a sample_size from 1 on, got {x.type}, {count}"
        )
    batch, classes = x.type.shape
    sums = b.op("cumsum", [b.op("softmax", [cast(b, x, DType.F64)], axis=1)], **_CUMULATIVE)
    starts, stops = (0, classes - 1), (batch, classes)
    total = b.op("slice", [sums], starts=starts, stops=stops, steps=(1, 1))
    reached = b.op("mul", [_draws(ctx, "random_uniform", (batch, count), DType.F64), total])
    passed = b.op(
        "less_equal",
        [b.op("reshape", [sums], shape=(batch, 1, classes)), b.op("reshape", [reached], shape=(batch, count, 1))],
    )
    to = _type(ctx, DType.I32)
    return [b.op("reduce_sum", [cast(b, passed, to)], axes=(2,), keepdims=False)]


_CUMULATIVE: dict[str, Attr] = {"axis": 1, "exclusive": False, "reverse": False}


@imports("Dropout")
def dropout(ctx: NodeContext) -> Sequence[Known]:
    """The identity at inference, where the mask is all true, unless training mode is on.

    To be trained it is dropout by its ratio, whatever its training mode: that says how the model was exported.
    """
    x = ctx.value(0)
    ratio = 0.0
    if ctx.trainable or (ctx.opset >= 12 and ctx.has(2) and bool(np.any(ctx.const(2)))):
        ratio = _dropout_ratio(ctx)
    wants_mask = len(ctx.node.output) > 1 and bool(ctx.node.output[1])
    mask_type = DType.BOOL if ctx.opset >= 10 else x.type.dtype
    if ratio == 0:
        mask = [ctx.b.op("broadcast", [ctx.b.scalar(True, mask_type)], shape=x.type.shape)] if wants_mask else []
        return [x, *mask]
    seed, stream = ctx.draw()
    y = ctx.b.op("dropout", [x, seed], ratio=ratio, stream=stream)
    if not wants_mask:
        return [y]
    # What becomes of ones by the same draw: so the mask agrees with y wherever the seed comes from.
    ones = ctx.b.op("broadcast", [ctx.b.scalar(1, x.type.dtype)], shape=x.type.shape)
    kept = ctx.b.op("dropout", [ones, seed], ratio=ratio, stream=stream)
    mask_value = ctx.b.op("greater", [kept, ctx.b.scalar(0, x.type.dtype)])
    return [y, mask_value if mask_type is DType.BOOL else ctx.b.op("cast", [mask_value], to=mask_type)]


def _dropout_ratio(ctx: NodeContext) -> float:
    """The probability with which an element is dropped."""
    if ctx.opset < 12:
        ratio = float(ctx.attr("ratio", 0.5))
    else:
        ratio = float(np.asarray(ctx.const(1)).reshape(())) if ctx.has(1) else 0.5
    if not 0 <= ratio < 1:
        raise ctx.unsupported(f"expected a ratio from 0 to below 1, got {ratio:g}")
    return ratio
