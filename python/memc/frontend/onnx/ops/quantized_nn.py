# SPDX-License-Identifier: Apache-2.0
"""Quantized convolutions and products: exact integer arithmetic in i32, then one scaling in f32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ..context import Known, NodeContext, imports
from .conv_pool import geometry


def _centred(ctx: NodeContext, data: int, zero: int, shape: tuple[int, ...] | None) -> Value:
    """Input `data` as i32 minus its zero point, which takes `shape` if it has one element per row, column or channel."""
    b = ctx.b
    x = cast(b, ctx.value(data), DType.I32)
    if not ctx.has(zero):
        return x
    known = ctx.known(zero)
    if known is not None and not known.any():
        return x
    return b.op("sub", [x, cast(b, spread_over(ctx, ctx.value(zero), shape), DType.I32)])


def spread_over(ctx: NodeContext, value: Value, shape: tuple[int, ...] | None) -> Value:
    """A scale or zero point as one number, or in `shape` if it has one element per row, column or channel."""
    if value.type.elements == 1:
        return value if value.type.rank == 0 else ctx.b.op("reshape", [value], shape=())
    if value.type.rank != 1 or shape is None:
        return value
    return ctx.b.op("reshape", [value], shape=shape)


def _requantize(ctx: NodeContext, total: Value, scales: Sequence[Value], zero: int) -> Value:
    """saturate(round(total * x_scale * w_scale / y_scale) + zero point)."""
    b = ctx.b
    x_scale, w_scale, y_scale = (cast(b, s, DType.F32) for s in scales)
    factor = b.op("div", [b.op("mul", [x_scale, w_scale]), y_scale])
    rounded = b.op("round", [b.op("mul", [cast(b, total, DType.F32), factor])])
    target = ctx.type(zero).dtype
    shifted = b.op("add", [rounded, cast(b, spread_over(ctx, ctx.value(zero), None), DType.F32)])
    info = np.iinfo(target.numpy)
    return cast(b, b.op("clip", [shifted], min=float(info.min), max=float(info.max)), target)


def _row(ctx: NodeContext, index: int) -> tuple[int, ...]:
    return (ctx.type(index).elements, 1)


def _int_product(ctx: NodeContext, a: int, a_zero: int, b: int, b_zero: int) -> Value:
    """numpy.matmul of inputs `a` and `b` less their zero points, in i32."""
    rows = _row(ctx, a_zero) if ctx.has(a_zero) else None
    x, y = _centred(ctx, a, a_zero, rows), _centred(ctx, b, b_zero, None)
    left, right = x.type.rank == 1, y.type.rank == 1
    if left:
        x = ctx.b.op("reshape", [x], shape=(1, x.type.shape[0]))
    if right:
        y = ctx.b.op("reshape", [y], shape=(y.type.shape[0], 1))
    found = ctx.b.op("matmul", [x, y], transpose_a=False, transpose_b=False)
    if not (left or right):
        return found
    *batch, m, n = found.type.shape
    return ctx.b.op("reshape", [found], shape=(*batch, *([] if left else [m]), *([] if right else [n])))


@imports("MatMulInteger")
def matmul_integer(ctx: NodeContext) -> Sequence[Known]:
    return [_int_product(ctx, 0, 2, 1, 3)]


@imports("QLinearMatMul")
def qlinear_matmul(ctx: NodeContext) -> Sequence[Known]:
    total = _int_product(ctx, 0, 2, 3, 5)
    scales = [
        spread_over(ctx, ctx.value(1), _row(ctx, 1)),
        spread_over(ctx, ctx.value(4), None),
        spread_over(ctx, ctx.value(6), _row(ctx, 6)),
    ]
    return [_requantize(ctx, total, scales, 7)]


def _int_conv(ctx: NodeContext, x: int, x_zero: int, w: int, w_zero: int, bias: int | None) -> Value:
    filters = ctx.type(w)
    per_filter = (filters.shape[0], *([1] * (filters.rank - 1)))
    data, weights = _centred(ctx, x, x_zero, None), _centred(ctx, w, w_zero, per_filter)
    shape = geometry(ctx, filters.shape[2:], ctx.type(x).shape[2:])
    operands = [shape.inside(ctx, data), weights] + ([ctx.value(bias)] if bias is not None and ctx.has(bias) else [])
    return ctx.b.op("conv", operands, group=int(ctx.attr("group", 1)), **shape.attrs(kernel=False))


@imports("ConvInteger")
def conv_integer(ctx: NodeContext) -> Sequence[Known]:
    return [_int_conv(ctx, 0, 2, 1, 3, None)]


@imports("QLinearConv")
def qlinear_conv(ctx: NodeContext) -> Sequence[Known]:
    total = _int_conv(ctx, 0, 2, 3, 5, 8)
    per_channel = (ctx.type(3).shape[0], *([1] * (ctx.type(3).rank - 2)))
    scales = [spread_over(ctx, ctx.value(i), per_channel) for i in (1, 4, 6)]
    return [_requantize(ctx, total, scales, 7)]
