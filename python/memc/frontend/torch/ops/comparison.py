# SPDX-License-Identifier: Apache-2.0
"""Comparisons, logic and choices between elements."""

from __future__ import annotations

import math

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ..context import NodeContext, common_dtype, converts
from .elementwise import number, operands

OPS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _comparison(name: str) -> None:
    @converts(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def convert(ctx: NodeContext) -> Value:
        x, y = operands(ctx)
        if x.type.dtype is DType.BOOL and name not in ("eq", "ne"):
            x, y = (cast(ctx.b, v, DType.I32) for v in (x, y))
        return ctx.b.op(OPS[name], [x, y])


for _name in OPS:
    _comparison(_name)


def truth(ctx: NodeContext, x: Value) -> Value:
    """Whether elements are not zero."""
    if x.type.dtype is DType.BOOL:
        return x
    return ctx.b.op("not_equal", [x, number(ctx, 0, x)])


@converts("aten.logical_not.default")
def logical_not(ctx: NodeContext) -> Value:
    return ctx.b.op("logical_not", [truth(ctx, ctx.value("self"))])


@converts("aten.logical_and.default", "aten.logical_or.default", "aten.logical_xor.default")
def logical(ctx: NodeContext) -> Value:
    kind = ctx.node.target.split(".")[1].rstrip("_")
    return ctx.b.op(kind, [truth(ctx, ctx.value(name)) for name in ("self", "other")])


@converts("aten.isnan.default")
def isnan(ctx: NodeContext) -> Value:
    return _of_floats(ctx, "is_nan")


@converts("aten.isinf.default")
def isinf(ctx: NodeContext) -> Value:
    return _of_floats(ctx, "is_inf")


def _of_floats(ctx: NodeContext, name: str) -> Value:
    """What no integer is."""
    b, x = ctx.b, ctx.value("self")
    return b.op(name, [x]) if x.type.dtype.is_float else b.op("not_equal", [x, x])


@converts("aten.isposinf.default", "aten.isneginf.default")
def is_signed_infinity(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    if not x.type.dtype.is_float:
        return b.op("not_equal", [x, x])
    return b.op("equal", [x, number(ctx, math.inf if "pos" in ctx.node.target else -math.inf, x)])


@converts("aten.isreal.default")
def isreal(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    return ctx.b.op("broadcast", [ctx.b.scalar(True, DType.BOOL)], shape=x.type.shape)


@converts("aten.isfinite.default")
def isfinite(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    if not x.type.dtype.is_float:
        return b.op("equal", [x, x])
    return b.op("less", [b.op("abs", [x]), number(ctx, math.inf, x)])


@converts("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(ctx: NodeContext) -> Value:
    return ctx.b.op("select", [truth(ctx, ctx.value("condition")), *operands(ctx)])


@converts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    return b.op("select", [truth(ctx, ctx.value("mask")), ctx.operand("value", x.type.dtype), x])


@converts("aten.nan_to_num.default")
def nan_to_num(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    if not x.type.dtype.is_float:
        return x
    import ml_dtypes

    limits = ml_dtypes.finfo(x.type.dtype.numpy)
    high, low = ctx.get("posinf", float(limits.max)), ctx.get("neginf", float(limits.min))
    found = b.op("select", [b.op("is_nan", [x]), number(ctx, ctx.get("nan", 0.0), x), x])
    found = b.op("select", [b.op("equal", [x, number(ctx, math.inf, x)]), number(ctx, high, x), found])
    return b.op("select", [b.op("equal", [x, number(ctx, -math.inf, x)]), number(ctx, low, x), found])


@converts("aten.heaviside.default")
def heaviside(ctx: NodeContext) -> Value:
    b, (x, at_zero) = ctx.b, (ctx.value("self"), ctx.value("values"))
    dtype = common_dtype(x, at_zero)
    step = cast(b, b.op("greater", [x, number(ctx, 0, x)]), dtype)
    return b.op("select", [b.op("equal", [x, number(ctx, 0, x)]), cast(b, at_zero, dtype), step])
