# SPDX-License-Identifier: Apache-2.0
"""Activation functions."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.types import DType

from ..context import Importer, Known, NodeContext, imports


def _plain(name: str) -> Importer:
    return lambda ctx: [ctx.b.op(name, [ctx.value(0)])]


imports("Relu")(_plain("relu"))
imports("Sigmoid")(_plain("sigmoid"))
imports("Softplus")(_plain("softplus"))


def _scalar(ctx: NodeContext, value: float, like: Value) -> Value:
    dtype = like.type.dtype
    return ctx.b.scalar(value if dtype.is_float else int(value), dtype)


@imports("LeakyRelu")
def leaky_relu(ctx: NodeContext) -> Sequence[Known]:
    return [ctx.b.op("leaky_relu", [ctx.value(0)], alpha=float(ctx.attr("alpha", 0.01)))]


@imports("Elu")
def elu(ctx: NodeContext) -> Sequence[Known]:
    return [ctx.b.op("elu", [ctx.value(0)], alpha=float(ctx.attr("alpha", 1.0)))]


@imports("Selu")
def selu(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    old = ctx.opset < 6
    alpha = float(ctx.attr("alpha", 1.6732 if old else 1.67326319217681884765625))
    gamma = float(ctx.attr("gamma", 1.0507 if old else 1.05070102214813232421875))
    return [ctx.b.op("mul", [ctx.b.op("elu", [x], alpha=alpha), _scalar(ctx, gamma, x)])]


@imports("Celu")
def celu(ctx: NodeContext) -> Sequence[Known]:
    """max(0, x) + min(0, alpha (e^(x / alpha) - 1)), which is alpha elu(x / alpha)."""
    x, alpha = ctx.value(0), float(ctx.attr("alpha", 1.0))
    if alpha == 1.0:
        return [ctx.b.op("elu", [x], alpha=1.0)]
    if alpha <= 0.0:
        raise ctx.unsupported(f"expected attribute `alpha` above 0, got {alpha}")
    scale = _scalar(ctx, alpha, x)
    return [ctx.b.op("mul", [ctx.b.op("elu", [ctx.b.op("div", [x, scale])], alpha=1.0), scale])]


@imports("Gelu")
def gelu(ctx: NodeContext) -> Sequence[Known]:
    return [ctx.b.op("gelu", [ctx.value(0)], approximate=ctx.attr("approximate", "none"))]


@imports("HardSigmoid")
def hard_sigmoid(ctx: NodeContext) -> Sequence[Known]:
    alpha, beta = float(ctx.attr("alpha", 0.2)), float(ctx.attr("beta", 0.5))
    return [ctx.b.op("hard_sigmoid", [ctx.value(0)], alpha=alpha, beta=beta)]


@imports("HardSwish")
def hard_swish(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    return [ctx.b.op("mul", [x, ctx.b.op("hard_sigmoid", [x], alpha=1.0 / 6.0, beta=0.5)])]


@imports("Softsign")
def softsign(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    return [ctx.b.op("div", [x, ctx.b.op("add", [ctx.b.op("abs", [x]), _scalar(ctx, 1, x)])])]


@imports("Mish")
def mish(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    return [ctx.b.op("mul", [x, ctx.b.op("tanh", [ctx.b.op("softplus", [x])])])]


@imports("Swish")
def swish(ctx: NodeContext) -> Sequence[Known]:
    x, alpha = ctx.value(0), float(ctx.attr("alpha", 1.0))
    if alpha == 1.0:
        return [ctx.b.op("silu", [x])]
    gate = ctx.b.op("sigmoid", [ctx.b.op("mul", [x, _scalar(ctx, alpha, x)])])
    return [ctx.b.op("mul", [x, gate])]


@imports("Shrink")
def shrink(ctx: NodeContext) -> Sequence[Known]:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    x, b = ctx.value(0), ctx.b
    bias, lambd = _scalar(ctx, ctx.attr("bias", 0.0), x), float(ctx.attr("lambd", 0.5))
    # Integers are compared as f64, since the bound may lie between two of them.
    compared = x if x.type.dtype.is_float else b.op("cast", [x], to=DType.F64)
    below = b.op("less", [compared, _scalar(ctx, -lambd, compared)])
    above = b.op("greater", [compared, _scalar(ctx, lambd, compared)])
    low, high = b.op("add", [x, bias]), b.op("sub", [x, bias])
    return [b.op("select", [below, low, b.op("select", [above, high, _scalar(ctx, 0, x)])])]


@imports("ThresholdedRelu")
def thresholded_relu(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    above = ctx.b.op("greater", [x, _scalar(ctx, float(ctx.attr("alpha", 1.0)), x)])
    return [ctx.b.op("select", [above, x, _scalar(ctx, 0, x)])]


@imports("PRelu")
def prelu(ctx: NodeContext) -> Sequence[Known]:
    """x where x >= 0, else slope x. Before opset 7 a slope of rank 1 belongs to axis 1."""
    x, slope = ctx.value(0), ctx.value(1)
    if ctx.opset < 7 and slope.type.elements == 1:
        slope = ctx.b.op("reshape", [slope], shape=())
    elif ctx.opset < 7 and slope.type.rank == 1 and x.type.rank > 2:
        slope = ctx.b.op("reshape", [slope], shape=slope.type.shape + (1,) * (x.type.rank - 2))
    negative = ctx.b.op("less", [x, _scalar(ctx, 0, x)])
    return [ctx.b.op("select", [negative, ctx.b.op("mul", [x, slope]), x])]
