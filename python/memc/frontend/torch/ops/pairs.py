# SPDX-License-Identifier: Apache-2.0
"""Functions of two tensors that are compositions: logarithms of sums, lengths and signs, similarities and cross products."""

from __future__ import annotations

import math

from memc.ir.core import Value
from memc.ir.ops.reduce import reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, converts
from .elementwise import float_operands, number
from .special import negative
from .views import cut


def _truth(ctx: NodeContext, name: str, x: Value, value: float) -> Value:
    return ctx.b.op(name, [x, number(ctx, value, x)])


@converts("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(ctx: NodeContext) -> Value:
    """The size of the one with the sign of the other, also that of -0."""
    b = ctx.b
    x, y = float_operands(ctx)
    size = b.op("abs", [x])
    return b.op("select", [negative(ctx, widen(b, y)), b.op("neg", [size]), size])


@converts("aten.hypot.default")
def hypot(ctx: NodeContext) -> Value:
    """sqrt(x^2 + y^2), with the greater one taken out so that squares stay finite."""
    b = ctx.b
    x, y = float_operands(ctx)
    dtype = x.type.dtype
    x, y = (b.op("abs", [widen(b, v)]) for v in (x, y))
    large, small = b.op("max", [x, y]), b.op("min", [x, y])
    plain = b.op("logical_or", [_truth(ctx, "equal", large, 0), _truth(ctx, "equal", large, math.inf)])
    ratio = b.op("div", [small, b.op("select", [plain, number(ctx, 1, large), large])])
    root = b.op("sqrt", [b.op("add", [b.op("mul", [ratio, ratio]), number(ctx, 1, ratio)])])
    found = b.op("select", [plain, large, b.op("mul", [large, root])])
    # An infinity decides, also beside nan.
    endless = b.op("logical_or", [_truth(ctx, "equal", x, math.inf), _truth(ctx, "equal", y, math.inf)])
    return cast(b, b.op("select", [endless, number(ctx, math.inf, found), found]), dtype)


@converts("aten.logaddexp.default", "aten.logaddexp2.default")
def logaddexp(ctx: NodeContext) -> Value:
    """log(e^x + e^y), or of powers of 2: the greater one and the logarithm of at most 2."""
    b = ctx.b
    x, y = float_operands(ctx)
    dtype, scale = x.type.dtype, math.log(2) if "logaddexp2" in ctx.node.target else 1.0
    x, y = widen(b, x), widen(b, y)
    top = b.op("max", [x, y])
    same = b.op("logical_and", [b.op("equal", [x, y]), _truth(ctx, "equal", b.op("abs", [x]), math.inf)])
    apart = b.op("neg", [b.op("abs", [b.op("sub", [x, y])])])
    power = b.op("exp", [b.op("mul", [apart, number(ctx, scale, apart)])])
    more = b.op("div", [b.op("log", [b.op("add", [power, number(ctx, 1, power)])]), number(ctx, scale, power)])
    return cast(b, b.op("select", [same, x, b.op("add", [top, more])]), dtype)


@converts("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self")
def xlogy(ctx: NodeContext) -> Value:
    """x log(y): 0 where x is 0, unless y is nan."""
    b = ctx.b
    x, y = float_operands(ctx)
    none = _truth(ctx, "equal", x, 0)
    found = b.op("mul", [x, b.op("log", [b.op("select", [none, number(ctx, 1, y), y])])])
    return b.op("select", [b.op("is_nan", [y]), y, found])


@converts("aten.cosine_similarity.default")
def cosine_similarity(ctx: NodeContext) -> Value:
    """The product of two directions; lengths are at least eps."""
    b = ctx.b
    x, y = float_operands(ctx, "x1", "x2")
    dtype, epsilon = x.type.dtype, float(ctx.get("eps", 1e-8))
    x, y = widen(b, x), widen(b, y)
    rank = max(x.type.rank, y.type.rank)
    axis = ctx.axis(int(ctx.get("dim", 1)), rank)

    def direction(v: Value) -> Value:
        at = [axis - rank + v.type.rank] if axis - rank + v.type.rank >= 0 else []
        square = reduce(b, "sum", b.op("mul", [v, v]), at, True) if at else b.op("mul", [v, v])
        return b.op("div", [v, b.op("sqrt", [b.op("max", [square, number(ctx, epsilon**2, square)])])])

    if x.type.shape != y.type.shape:
        shape = b.op("add", [x, y]).type.shape
        x, y = (v if v.type.shape == shape else b.op("broadcast", [v], shape=shape) for v in (x, y))
    product = b.op("mul", [direction(x), direction(y)])
    return cast(b, reduce(b, "sum", product, [axis], False) if product.type.rank else product, dtype)


@converts("aten.linalg_cross.default")
def cross(ctx: NodeContext) -> Value:
    """The cross product along an axis of three."""
    b = ctx.b
    x, y = ctx.value("self"), ctx.value("other")
    if x.type.dtype is DType.BOOL:
        raise ctx.unsupported("a cross product of booleans")
    axis = ctx.axis(int(ctx.get("dim", -1)), max(x.type.rank, y.type.rank))

    def turned(v: Value, by: int) -> Value:
        """(v1, v2, v0), or by two (v2, v0, v1)."""
        at = axis - max(x.type.rank, y.type.rank) + v.type.rank
        return b.op("concat", [cut(b, v, at, (by, 3, 1)), cut(b, v, at, (0, by, 1))], axis=at)

    return b.op("sub", [b.op("mul", [turned(x, 1), turned(y, 2)]), b.op("mul", [turned(x, 2), turned(y, 1)])])
