# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, common_dtype, converts

FLOATS = {
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh")},
    **{name: name for name in ("atanh", "exp", "log", "sqrt", "rsqrt", "erf", "sigmoid", "reciprocal")},
}
"""Overloads `aten.NAME.default` whose results are floats, and their ops."""

SAME = {
    **{name: name for name in ("abs", "neg", "floor", "ceil", "round", "trunc", "relu")},
    "bitwise_not": "bitwise_not",
}
"""Overloads whose results have their operand's type."""

INTEGER_ALREADY = frozenset({"floor", "ceil", "round", "trunc"})


def _float_unary(name: str) -> None:
    @converts(f"aten.{name}.default")
    def convert(ctx: NodeContext) -> Value:
        x = ctx.value("self")
        dtype = x.type.dtype if x.type.dtype.is_float else DType.F32
        return ctx.b.op(FLOATS[name], [cast(ctx.b, x, dtype)])


def _same_unary(name: str) -> None:
    @converts(f"aten.{name}.default")
    def convert(ctx: NodeContext) -> Value:
        x = ctx.value("self")
        if name in INTEGER_ALREADY and not x.type.dtype.is_float:
            return x
        if name == "bitwise_not" and x.type.dtype is DType.BOOL:
            return ctx.b.op("logical_not", [x])
        return ctx.b.op(SAME[name], [x])


@converts("aten.sign.default", "aten.sgn.default")
def sign(ctx: NodeContext) -> Value:
    """0 of nan, as in PyTorch."""
    b, x = ctx.b, ctx.value("self")
    if x.type.dtype is DType.BOOL:
        return x
    found = b.op("sign", [x])
    return b.op("select", [b.op("is_nan", [x]), number(ctx, 0, x), found]) if x.type.dtype.is_float else found


for _name in FLOATS:
    _float_unary(_name)
for _name in SAME:
    _same_unary(_name)


def number(ctx: NodeContext, value: float, x: Value) -> Value:
    """A number of the type of x."""
    return ctx.b.scalar(value, x.type.dtype)


def floating(ctx: NodeContext) -> Value:
    """The operand `self`; integers and booleans as f32."""
    x = ctx.value("self")
    return x if x.type.dtype.is_float else cast(ctx.b, x, DType.F32)


def operands(ctx: NodeContext, left: str = "self", right: str = "other") -> tuple[Value, Value]:
    """Two operands, tensors or numbers, in the type that both become."""
    known = [ctx.get(left), ctx.get(right)]
    given = [k if isinstance(k, (int, float)) else ctx.read(k) for k in known]
    dtype = common_dtype(*given)
    first, second = (ctx.typed(item, dtype) for item in given)
    return first, second


def float_operands(ctx: NodeContext, left: str = "self", right: str = "other") -> tuple[Value, Value]:
    """Two operands in the floats that both become. Each goes there from its own type: uint8 and a whole number below 0 have no
    other type in common."""
    known = [ctx.get(left), ctx.get(right)]
    given = [k if isinstance(k, (int, float)) else ctx.read(k) for k in known]
    dtype = common_dtype(*given)
    first, second = (ctx.typed(item, dtype if dtype.is_float else DType.F32) for item in given)
    return first, second


def _scaled(ctx: NodeContext, x: Value, alpha: Any) -> Value:
    return x if alpha == 1 else ctx.b.op("mul", [x, ctx.typed(alpha, x.type.dtype)])


@converts("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: NodeContext) -> Value:
    x, y = operands(ctx)
    if x.type.dtype is DType.BOOL:
        return ctx.b.op("logical_or", [x, y]) if ctx.get("alpha", 1) else x
    return ctx.b.op("add", [x, _scaled(ctx, y, ctx.get("alpha", 1))])


@converts("aten.sub.Tensor", "aten.sub.Scalar")
def sub(ctx: NodeContext) -> Value:
    x, y = operands(ctx)
    return ctx.b.op("sub", [x, _scaled(ctx, y, ctx.get("alpha", 1))])


@converts("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(ctx: NodeContext) -> Value:
    x, y = operands(ctx)
    return ctx.b.op("sub", [y, _scaled(ctx, x, ctx.get("alpha", 1))])


@converts("aten.mul.Tensor", "aten.mul.Scalar")
def mul(ctx: NodeContext) -> Value:
    x, y = operands(ctx)
    return ctx.b.op("logical_and" if x.type.dtype is DType.BOOL else "mul", [x, y])


@converts("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.divide.Tensor", "aten.divide.Scalar")
def div(ctx: NodeContext) -> Value:
    return ctx.b.op("div", list(float_operands(ctx)))


@converts("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(ctx: NodeContext) -> Value:
    mode = ctx.get("rounding_mode")
    if mode is None:
        return div(ctx)  # type: ignore[no-any-return]
    x, y = operands(ctx)
    return _floored(ctx, x, y) if mode == "floor" else _truncated(ctx, x, y)


def _truncated(ctx: NodeContext, x: Value, y: Value) -> Value:
    found = ctx.b.op("div", [x, y])
    return ctx.b.op("trunc", [found]) if found.type.dtype.is_float else found


def _floored(ctx: NodeContext, x: Value, y: Value) -> Value:
    """The greatest whole number not above the quotient. Of floats by their remainder, as in PyTorch: the rounded quotient may
    be a whole number that the exact one does not reach."""
    b = ctx.b
    if not x.type.dtype.is_float:
        return b.op("div", [b.op("sub", [x, b.op("mod", [x, y])]), y])
    dtype, x, y = x.type.dtype, widen(b, x), widen(b, y)
    zero, one = number(ctx, 0, x), number(ctx, 1, x)
    rest = b.op("fmod", [x, y])
    whole = b.op("div", [b.op("sub", [x, rest]), y])
    differ = b.op("not_equal", [b.op("less", [y, zero]), b.op("less", [rest, zero])])
    below = b.op("logical_and", [b.op("not_equal", [rest, zero]), differ])
    whole = b.op("select", [below, b.op("sub", [whole, one]), whole])
    low = b.op("floor", [whole])
    high = b.op("greater", [b.op("sub", [whole, low]), number(ctx, 0.5, x)])
    found = b.op("select", [high, b.op("add", [low, one]), low])
    return cast(b, b.op("select", [b.op("equal", [y, zero]), b.op("div", [x, y]), found]), dtype)


@converts("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(ctx: NodeContext) -> Value:
    return _floored(ctx, *operands(ctx))


@converts("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(ctx: NodeContext) -> Value:
    return ctx.b.op("mod", list(operands(ctx)))


@converts("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(ctx: NodeContext) -> Value:
    return ctx.b.op("fmod", list(operands(ctx)))


@converts("aten.maximum.default", "aten.max.other")
def maximum(ctx: NodeContext) -> Value:
    return ctx.b.op("max", list(operands(ctx)))


@converts("aten.minimum.default", "aten.min.other")
def minimum(ctx: NodeContext) -> Value:
    return ctx.b.op("min", list(operands(ctx)))


@converts("aten.fmax.default", "aten.fmin.default")
def extremum_of_numbers(ctx: NodeContext) -> Value:
    """The other operand where one is nan."""
    b, (x, y) = ctx.b, operands(ctx)
    found = b.op("max" if ".fmax." in ctx.node.target else "min", [x, y])
    if not x.type.dtype.is_float:
        return found
    found = b.op("select", [b.op("is_nan", [y]), x, found])
    return b.op("select", [b.op("is_nan", [x]), y, found])


def square(ctx: NodeContext, x: Value) -> Value:
    return ctx.b.op("mul", [x, x])


@converts("aten.square.default")
def square_node(ctx: NodeContext) -> Value:
    return square(ctx, ctx.value("self"))


@converts("aten.pow.Tensor_Scalar")
def pow_scalar(ctx: NodeContext) -> Value:
    b, x, exponent = ctx.b, ctx.value("self"), ctx.get("exponent")
    if isinstance(exponent, float) and not x.type.dtype.is_float:
        x = cast(b, x, DType.F32)
    if exponent == 1:
        return x
    if exponent == 2:
        return square(ctx, x)
    if exponent == 3:
        return b.op("mul", [square(ctx, x), x])
    if exponent in (0.5, -0.5):
        return b.op("sqrt" if exponent > 0 else "rsqrt", [x])
    if exponent == -1 and x.type.dtype.is_float:
        return b.op("reciprocal", [x])
    return b.op("pow", [x, ctx.typed(exponent, x.type.dtype)])


@converts("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow_tensor(ctx: NodeContext) -> Value:
    return ctx.b.op("pow", list(operands(ctx, "self", "exponent")))


@converts("aten.addcmul.default", "aten.addcdiv.default")
def addc(ctx: NodeContext) -> Value:
    b, kind = ctx.b, "mul" if "addcmul" in ctx.node.target else "div"
    x, *factors = (ctx.value(name) for name in ("self", "tensor1", "tensor2"))
    dtype = common_dtype(x, *factors)
    dtype = dtype if kind == "mul" or dtype.is_float else DType.F32
    x, *factors = (cast(b, v, dtype) for v in (x, *factors))
    found = b.op(kind, factors)
    return b.op("add", [x, _scaled(ctx, found, ctx.get("value", 1))])


@converts("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(ctx: NodeContext) -> Value:
    """Counted from the nearer end, so that a weight of 1 is exactly `end`."""
    b, x = ctx.b, ctx.value("self")
    end, weight = ctx.operand("end", x.type.dtype), ctx.operand("weight", x.type.dtype)
    apart = b.op("sub", [end, x])
    low = b.op("add", [x, b.op("mul", [weight, apart])])
    high = b.op("sub", [end, b.op("mul", [apart, b.op("sub", [number(ctx, 1, x), weight])])])
    known = ctx.get("weight")
    if isinstance(known, (int, float)):
        return low if abs(known) < 0.5 else high
    return b.op("select", [b.op("less", [b.op("abs", [weight]), number(ctx, 0.5, x)]), low, high])


@converts("aten.clamp.default", "aten.clip.default", "aten.clamp_min.default", "aten.clamp_max.default")
def clamp(ctx: NodeContext) -> Value:
    """A limit that is nan is refused; one alone is the other's infinity."""
    b, x = ctx.b, ctx.value("self")
    low, high = ctx.get("min"), ctx.get("max")
    dtype = common_dtype(x, *(n for n in (low, high) if n is not None))
    x = cast(b, x, dtype)
    if low is not None:
        x = b.op("max", [x, ctx.typed(low, dtype)])
    return x if high is None else b.op("min", [x, ctx.typed(high, dtype)])


@converts("aten.clamp.Tensor", "aten.clamp_min.Tensor", "aten.clamp_max.Tensor")
def clamp_tensor(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    limits = {name: ctx.value(name) for name in ("min", "max") if ctx.has(name)}
    dtype = common_dtype(x, *limits.values())
    x = cast(b, x, dtype)
    for name, op in (("min", "max"), ("max", "min")):
        if name in limits:
            x = b.op(op, [x, cast(b, limits[name], dtype)])
    return x


BITWISE = ("and", "or", "xor")


@converts(
    *(f"aten.bitwise_{kind}.{form}" for kind in BITWISE for form in ("Tensor", "Scalar", "Scalar_Tensor")),
    *(f"aten.__{kind}__.{form}" for kind in BITWISE for form in ("Tensor", "Scalar")),
)
def bitwise(ctx: NodeContext) -> Value:
    kind = next(k for k in ("xor", "and", "or") if k in ctx.node.target.split(".")[1])
    x, y = operands(ctx)
    return ctx.b.op(f"{'logical' if x.type.dtype is DType.BOOL else 'bitwise'}_{kind}", [x, y])


@converts(
    *(
        f"aten.bitwise_{way}_shift.{form}"
        for way in ("left", "right")
        for form in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    ),
    *(f"aten.__{way}shift__.{form}" for way in "lr" for form in ("Tensor", "Scalar")),
)
def shift(ctx: NodeContext) -> Value:
    """By at least as many bits as there are, or by a negative number: 0, or to the right the sign. Of floats, a product with a power
    of 2."""
    b, left = ctx.b, "left" in ctx.node.target or "lshift" in ctx.node.target
    x, y = operands(ctx)
    if x.type.dtype.is_float:
        return b.op("mul", [x, b.op("pow", [number(ctx, 2, y), y if left else b.op("neg", [y])])])
    last = 8 * x.type.dtype.itemsize - 1
    inside = b.op("less_equal", [y, number(ctx, last, y)])
    if np.issubdtype(x.type.dtype.numpy, np.signedinteger):
        inside = b.op("logical_and", [inside, b.op("greater_equal", [y, number(ctx, 0, y)])])
    by = b.op("select", [inside, y, number(ctx, 0 if left else last, y)])
    found = b.op("shift_left" if left else "shift_right", [x, by])
    signed = np.issubdtype(x.type.dtype.numpy, np.signedinteger)
    return found if signed and not left else b.op("select", [inside, found, number(ctx, 0, x)])
