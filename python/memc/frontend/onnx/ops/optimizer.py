# SPDX-License-Identifier: Apache-2.0
"""Momentum, Adagrad and Adam of domain ai.onnx.preview.training: one update of any number of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Value

_DOMAIN = "ai.onnx.preview.training"


def _scale(ctx: NodeContext, x: Value, factor: float) -> Value:
    return ctx.b.op("mul", [x, ctx.b.scalar(factor, x.type.dtype)])


def _as(ctx: NodeContext, x: Value, like: Value) -> Value:
    """A rate or count with the element type of the tensor it is applied to."""
    return x if x.type.dtype is like.type.dtype else ctx.b.op("cast", [x], to=like.type.dtype)


def _regularized(ctx: NodeContext, x: Value, gradient: Value) -> Value:
    factor = float(ctx.attr("norm_coefficient", 0.0))
    return ctx.b.op("add", [_scale(ctx, x, factor), gradient]) if factor else gradient


def _each(ctx: NodeContext, states: int, update: Callable[..., Sequence[Value]]) -> Sequence[Known]:
    """Inputs R, T, all X, all G, then `states` groups; outputs all X, then the groups."""
    count, rest = divmod(len(ctx.inputs) - 2, 2 + states)
    if rest or count < 1:
        raise ctx.unsupported(f"expected {2 + states} inputs for each tensor after R and T, got {len(ctx.inputs) - 2}")
    found = [update(*(ctx.value(2 + group * count + i) for group in range(2 + states))) for i in range(count)]
    return [results[group] for group in range(1 + states) for results in found]


@imports("Momentum", _DOMAIN)
def momentum(ctx: NodeContext) -> Sequence[Known]:
    b, rate, step = ctx.b, ctx.value(0), ctx.value(1)
    alpha, beta, mode = float(ctx.attr("alpha")), float(ctx.attr("beta")), ctx.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise ctx.unsupported(f"expected mode standard or nesterov, got {mode}")

    def update(x: Value, gradient: Value, velocity: Value) -> Sequence[Value]:
        g = _regularized(ctx, x, gradient)
        later = b.op("greater", [step, b.scalar(0, step.type.dtype)])
        weight = b.op("select", [later, b.scalar(beta, x.type.dtype), b.scalar(1, x.type.dtype)])
        new = b.op("add", [_scale(ctx, velocity, alpha), b.op("mul", [g, weight])])
        move = b.op("add", [g, _scale(ctx, new, alpha)]) if mode == "nesterov" else new
        return [b.op("sub", [x, b.op("mul", [_as(ctx, rate, x), move])]), new]

    return _each(ctx, 1, update)


@imports("Adagrad", _DOMAIN)
def adagrad(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b
    decay, epsilon = float(ctx.attr("decay_factor", 0.0)), float(ctx.attr("epsilon", 1e-6))

    def update(x: Value, gradient: Value, squares: Value) -> Sequence[Value]:
        rate, step = _as(ctx, ctx.value(0), x), _as(ctx, ctx.value(1), x)
        slower = b.op("add", [_scale(ctx, step, decay), b.scalar(1, x.type.dtype)])
        g = _regularized(ctx, x, gradient)
        new = b.op("add", [squares, b.op("mul", [g, g])])
        adaptive = b.op("add", [b.op("sqrt", [new]), b.scalar(epsilon, x.type.dtype)])
        move = b.op("div", [b.op("mul", [b.op("div", [rate, slower]), g]), adaptive])
        return [b.op("sub", [x, move]), new]

    return _each(ctx, 1, update)


@imports("Adam", _DOMAIN)
def adam(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b
    alpha, beta = float(ctx.attr("alpha", 0.9)), float(ctx.attr("beta", 0.999))
    epsilon, after = float(ctx.attr("epsilon", 1e-6)), float(ctx.attr("norm_coefficient_post", 0.0))

    def update(x: Value, gradient: Value, first: Value, second: Value) -> Sequence[Value]:
        dtype = x.type.dtype
        rate, step = _as(ctx, ctx.value(0), x), _as(ctx, ctx.value(1), x)
        one = b.scalar(1, dtype)
        g = _regularized(ctx, x, gradient)
        v = b.op("add", [_scale(ctx, first, alpha), _scale(ctx, g, 1 - alpha)])
        h = b.op("add", [_scale(ctx, second, beta), _scale(ctx, b.op("mul", [g, g]), 1 - beta)])
        root = b.op("add", [b.op("sqrt", [h]), b.scalar(epsilon, dtype)])
        unbiased_second = b.op("sqrt", [b.op("sub", [one, b.op("pow", [b.scalar(beta, dtype), step])])])
        unbiased_first = b.op("sub", [one, b.op("pow", [b.scalar(alpha, dtype), step])])
        later = b.op("greater", [step, b.scalar(0, dtype)])
        adjusted = b.op("mul", [rate, b.op("div", [unbiased_second, unbiased_first])])
        adjusted = b.op("select", [later, adjusted, rate])
        new = b.op("sub", [x, b.op("div", [b.op("mul", [adjusted, v]), root])])
        return [_scale(ctx, new, 1 - after) if after else new, v, h]

    return _each(ctx, 2, update)
