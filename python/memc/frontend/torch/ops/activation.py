# SPDX-License-Identifier: Apache-2.0
"""Activations."""

from __future__ import annotations

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, converts
from .elementwise import floating, number


@converts("aten.gelu.default")
def gelu(ctx: NodeContext) -> Value:
    return ctx.b.op("gelu", [ctx.value("self")], approximate=ctx.get("approximate", "none"))


@converts("aten.silu.default")
def silu(ctx: NodeContext) -> Value:
    return ctx.b.op("silu", [ctx.value("self")])


@converts("aten.hardtanh.default")
def hardtanh(ctx: NodeContext) -> Value:
    low, high = float(ctx.get("min_val", -1)), float(ctx.get("max_val", 1))
    return ctx.b.op("clip", [ctx.value("self")], min=low, max=high)


@converts("aten.relu6.default")
def relu6(ctx: NodeContext) -> Value:
    return ctx.b.op("clip", [ctx.value("self")], min=0.0, max=6.0)


@converts("aten.hardsigmoid.default")
def hardsigmoid(ctx: NodeContext) -> Value:
    return ctx.b.op("hard_sigmoid", [ctx.value("self")], alpha=1 / 6, beta=0.5)


@converts("aten.hardswish.default")
def hardswish(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    return ctx.b.op("mul", [x, ctx.b.op("hard_sigmoid", [x], alpha=1 / 6, beta=0.5)])


@converts("aten.leaky_relu.default")
def leaky_relu(ctx: NodeContext) -> Value:
    return ctx.b.op("leaky_relu", [ctx.value("self")], alpha=float(ctx.get("negative_slope", 0.01)))


@converts("aten.elu.default")
def elu(ctx: NodeContext) -> Value:
    """scale (x for x > 0, else alpha (e^(input_scale x) - 1))."""
    b, x = ctx.b, ctx.value("self")
    alpha, scale, inner = (float(ctx.get(name, 1)) for name in ("alpha", "scale", "input_scale"))
    if inner == 1:
        found = b.op("elu", [x], alpha=alpha)
    else:
        curve = b.op("elu", [b.op("mul", [x, number(ctx, inner, x)])], alpha=alpha)
        found = b.op("select", [b.op("greater", [x, number(ctx, 0, x)]), x, curve])
    return found if scale == 1 else b.op("mul", [found, number(ctx, scale, x)])


@converts("aten.selu.default")
def selu(ctx: NodeContext) -> Value:
    x = ctx.b.op("elu", [ctx.value("self")], alpha=1.6732632423543772)
    return ctx.b.op("mul", [x, number(ctx, 1.0507009873554805, x)])


@converts("aten.celu.default")
def celu(ctx: NodeContext) -> Value:
    b, x, alpha = ctx.b, ctx.value("self"), float(ctx.get("alpha", 1))
    curve = b.op("elu", [b.op("mul", [x, number(ctx, 1 / alpha, x)])], alpha=alpha)
    return b.op("select", [b.op("greater", [x, number(ctx, 0, x)]), x, curve])


@converts("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(ctx: NodeContext) -> Value:
    b, x, slope = ctx.b, ctx.value("self"), ctx.value("weight")
    if slope.type.elements > 1 and slope.type.rank == 1:
        slope = b.op("reshape", [slope], shape=(slope.type.elements, *[1] * (x.type.rank - 2)))
    elif slope.type.elements == 1:
        slope = b.op("reshape", [slope], shape=())
    return b.op("select", [b.op("greater", [x, number(ctx, 0, x)]), x, b.op("mul", [x, slope])])


def softplus_of(ctx: NodeContext, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    b = ctx.b
    scaled = x if beta == 1 else b.op("mul", [x, number(ctx, beta, x)])
    found = b.op("softplus", [scaled])
    found = found if beta == 1 else b.op("mul", [found, number(ctx, 1 / beta, x)])
    return b.op("select", [b.op("greater", [scaled, number(ctx, threshold, x)]), x, found])


@converts("aten.softplus.default")
def softplus(ctx: NodeContext) -> Value:
    return softplus_of(ctx, ctx.value("self"), float(ctx.get("beta", 1)), float(ctx.get("threshold", 20)))


@converts("aten.mish.default")
def mish(ctx: NodeContext) -> Value:
    b, x = ctx.b, widen(ctx.b, ctx.value("self"))
    return cast(b, b.op("mul", [x, b.op("tanh", [b.op("softplus", [x])])]), ctx.value("self").type.dtype)


@converts("aten.log_sigmoid.default")
def log_sigmoid(ctx: NodeContext) -> Value:
    b = ctx.b
    return b.op("neg", [b.op("softplus", [b.op("neg", [ctx.value("self")])])])


@converts("aten.glu.default")
def glu(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    axis = ctx.axis(int(ctx.get("dim", -1)), x.type.rank)
    half = x.type.shape[axis] // 2
    parts = []
    for start in (0, half):
        starts = tuple(start if a == axis else 0 for a in range(x.type.rank))
        stops = tuple(start + half if a == axis else n for a, n in enumerate(x.type.shape))
        parts.append(b.op("slice", [x], starts=starts, stops=stops, steps=(1,) * x.type.rank))
    return b.op("mul", [parts[0], b.op("sigmoid", [parts[1]])])


@converts("aten.threshold.default")
def threshold(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    limit, other = ctx.operand("threshold", x.type.dtype), ctx.operand("value", x.type.dtype)
    return b.op("select", [b.op("greater", [x, limit]), x, other])


@converts("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default")
def softmax(ctx: NodeContext) -> Value:
    return _along(ctx, "softmax")


@converts("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(ctx: NodeContext) -> Value:
    return _along(ctx, "log_softmax")


def _along(ctx: NodeContext, name: str) -> Value:
    b, x = ctx.b, ctx.value("self")
    wanted = ctx.get("dtype")
    x = cast(b, x, wanted) if isinstance(wanted, DType) else x
    if not x.type.rank:
        x = b.op("reshape", [x], shape=(1,))
        return b.op("reshape", [b.op(name, [x], axis=0)], shape=())
    axis = ctx.axis(int(ctx.get("dim", 0)), x.type.rank)
    found = b.op(name, [x], axis=axis)
    if "_safe_" in ctx.node.target:
        # A row that sees nothing is 0, not nan.
        none = b.op("equal", [b.op("reduce_max", [x], axes=(axis,), keepdims=True), number(ctx, float("-inf"), x)])
        found = b.op("select", [none, number(ctx, 0, x), found])
    return cast(b, found, ctx.out_dtype(found.type.dtype))


@converts("aten.hardshrink.default", "aten.softshrink.default")
def shrink(ctx: NodeContext) -> Value:
    """0 from -lambd to lambd; elsewhere x, or for the soft one x less lambd towards 0."""
    b, x = ctx.b, ctx.value("self")
    limit = number(ctx, float(ctx.get("lambd", 0.5)), x)
    high, low = x, x
    if "softshrink" in ctx.node.target:
        high, low = b.op("sub", [x, limit]), b.op("add", [x, limit])
    below = b.op("less", [x, b.op("neg", [limit])])
    zero = number(ctx, 0, x)
    kept = b.op("select", [b.op("is_nan", [x]), x, zero])
    return b.op("select", [b.op("greater", [x, limit]), high, b.op("select", [below, low, kept])])


@converts("aten.logit.default")
def logit(ctx: NodeContext) -> Value:
    """log(x / (1 - x)), of x from eps to 1 - eps."""
    b, given = ctx.b, floating(ctx)
    x, epsilon = widen(b, given), ctx.get("eps")
    if epsilon is not None:
        x = b.op("min", [b.op("max", [x, number(ctx, epsilon, x)]), number(ctx, 1 - epsilon, x)])
    found = b.op("log", [b.op("div", [x, b.op("sub", [number(ctx, 1, x), x])])])
    return cast(b, found, given.type.dtype)
