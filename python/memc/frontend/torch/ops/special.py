# SPDX-License-Identifier: Apache-2.0
"""Functions of one or two numbers that are made of several ops, for the values at which a short formula fails."""

from __future__ import annotations

import math

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, converts
from .elementwise import float_operands, floating, number, square


@converts("aten.exp2.default")
def exp2(ctx: NodeContext) -> Value:
    x = floating(ctx)
    return ctx.b.op("exp", [ctx.b.op("mul", [x, number(ctx, math.log(2), x)])])


@converts("aten.log2.default", "aten.log10.default")
def other_logarithms(ctx: NodeContext) -> Value:
    base = 2 if ".log2." in ctx.node.target else 10
    x = ctx.b.op("log", [floating(ctx)])
    return ctx.b.op("mul", [x, number(ctx, 1 / math.log(base), x)])


@converts("aten.expm1.default")
def expm1(ctx: NodeContext) -> Value:
    """tanh(x / 2) (e^x + 1), exact near 0, and for large x, where that overflows early, e^x - 1."""
    b, given = ctx.b, floating(ctx)
    x = widen(b, given)
    half = b.op("tanh", [b.op("mul", [x, number(ctx, 0.5, x)])])
    power = b.op("exp", [x])
    found = b.op("mul", [half, b.op("add", [power, number(ctx, 1, x)])])
    return cast(b, found, given.type.dtype)


@converts("aten.log1p.default")
def log1p(ctx: NodeContext) -> Value:
    """2 atanh(x / (2 + x)), exact near 0, and elsewhere log(1 + x)."""
    b, given = ctx.b, floating(ctx)
    x = widen(b, given)
    near = b.op("less", [b.op("abs", [x]), number(ctx, 0.5, x)])
    small = b.op("select", [near, x, number(ctx, 0, x)])
    ratio = b.op("div", [small, b.op("add", [small, number(ctx, 2, x)])])
    first = b.op("mul", [b.op("atanh", [ratio]), number(ctx, 2, x)])
    large = b.op("select", [near, number(ctx, 0, x), x])
    second = b.op("log", [b.op("add", [large, number(ctx, 1, x)])])
    return cast(b, b.op("select", [near, first, second]), given.type.dtype)


@converts("aten.deg2rad.default", "aten.rad2deg.default")
def angles(ctx: NodeContext) -> Value:
    x = floating(ctx)
    return ctx.b.op("mul", [x, number(ctx, math.pi / 180 if "deg2rad" in ctx.node.target else 180 / math.pi, x)])


@converts("aten.frac.default")
def frac(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    return ctx.b.op("sub", [x, ctx.b.op("trunc", [x])])


@converts("aten.sinc.default")
def sinc(ctx: NodeContext) -> Value:
    """sin(pi x) / (pi x), 1 at 0."""
    b, given = ctx.b, floating(ctx)
    x = b.op("mul", [widen(b, given), number(ctx, math.pi, widen(b, given))])
    none = b.op("equal", [x, number(ctx, 0, x)])
    x = b.op("select", [none, number(ctx, 1, x), x])
    found = b.op("select", [none, number(ctx, 1, x), b.op("div", [b.op("sin", [x]), x])])
    return cast(b, found, given.type.dtype)


ERFC = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223)
"""Coefficients of a fit of log(erfc(x) / t) + x^2 in t = 1 / (1 + x / 2) for x >= 0, within 1.2e-7; 0.17087277 is the last."""


@converts("aten.erfc.default")
def erfc(ctx: NodeContext) -> Value:
    """1 - erf(x), and by a fit where that cancels."""
    b, given = ctx.b, floating(ctx)
    x = widen(b, given)
    start = 2.0 if x.type.dtype is DType.F64 else 0.5
    far = b.op("greater", [x, number(ctx, start, x)])
    z = b.op("select", [far, x, number(ctx, start, x)])
    t = b.op("reciprocal", [b.op("add", [b.op("mul", [z, number(ctx, 0.5, x)]), number(ctx, 1, x)])])
    fit = number(ctx, 0.17087277, x)
    for coefficient in reversed(ERFC):
        fit = b.op("add", [b.op("mul", [fit, t]), number(ctx, coefficient, x)])
    tail = b.op("mul", [t, b.op("exp", [b.op("sub", [fit, square(ctx, z)])])])
    near = b.op("sub", [number(ctx, 1, x), b.op("erf", [x])])
    return cast(b, b.op("select", [far, tail, near]), given.type.dtype)


@converts("aten.atan2.default")
def atan2(ctx: NodeContext) -> Value:
    """The angle of (x, y): atan of the smaller by the larger coordinate, in the octant that it is in. No `abs`, whose gradient is
    0 at 0."""
    b = ctx.b
    y, x = float_operands(ctx)
    dtype = x.type.dtype
    x, y = widen(b, x), widen(b, y)
    one = number(ctx, 1, x)
    left, down = negative(ctx, x), negative(ctx, y)
    across, up = _turned(ctx, left, x, b.op("neg", [x])), _turned(ctx, down, y, b.op("neg", [y]))
    steep = b.op("greater", [up, across])
    small, large = _turned(ctx, steep, up, across), _turned(ctx, steep, across, up)
    corner = b.op("logical_and", [b.op("is_inf", [small]), b.op("is_inf", [large])])
    none = b.op("equal", [large, number(ctx, 0, x)])
    ratio = b.op("div", [small, b.op("select", [b.op("logical_or", [none, corner]), one, large])])
    angle = b.op("atan", [b.op("select", [corner, one, ratio])])
    angle = _turned(ctx, steep, angle, b.op("sub", [number(ctx, math.pi / 2, x), angle]))
    angle = _turned(ctx, left, angle, b.op("sub", [number(ctx, math.pi, x), angle]))
    return cast(b, _turned(ctx, down, angle, b.op("neg", [angle])), dtype)


def _turned(ctx: NodeContext, where: Value, plain: Value, other: Value) -> Value:
    """`other` where `where` says so."""
    return ctx.b.op("select", [where, other, plain])


def negative(ctx: NodeContext, x: Value) -> Value:
    """Whether the sign is set, also that of -0."""
    bits = ctx.b.op("bitcast", [x], to=DType.I64 if x.type.dtype is DType.F64 else DType.I32)
    return ctx.b.op("less", [bits, number(ctx, 0, bits)])
