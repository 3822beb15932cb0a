# SPDX-License-Identifier: Apache-2.0
"""Normalizations. A training step moves running statistics by itself (`build-gradient`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Role, Value
from memc.ir.ops.reduce import mean
from memc.ir.ops.shared.casts import cast, widen

from ..context import NodeContext, converts
from ..nodes import write
from .elementwise import number, square
from .reduction import variance_of
from .views import reshaped


def _parameters(ctx: NodeContext, x: Value, names: Sequence[str] = ("weight", "bias")) -> list[Value]:
    """Scale and bias of each channel; ones and zeros where there are none."""
    found = []
    for name, neutral in zip(names, (1, 0)):
        given = ctx.value(name) if ctx.has(name) else None
        if given is None:
            channels = (x.type.shape[1],)
            given = ctx.b.constant(np.full(channels, neutral, x.type.dtype.numpy))
        found.append(given)
    return found


def _per_channel(ctx: NodeContext, statistic: Value, x: Value) -> Value:
    return reshaped(ctx.b, statistic, (x.type.shape[1], *[1] * (x.type.rank - 2)))


@converts("aten.batch_norm.default")
def batch_norm(ctx: NodeContext) -> Value:
    return _batch_norm(ctx, bool(ctx.get("training", False)))[0]


@converts("aten._native_batch_norm_legit_no_training.default")
def native_no_training(ctx: NodeContext) -> Sequence[Value]:
    """The saved statistics are empty, and nothing reads them."""
    return _batch_norm(ctx, False)[:1]


@converts("aten._native_batch_norm_legit.default", "aten.native_batch_norm.default")
def native(ctx: NodeContext) -> Sequence[Value]:
    """Outside of training the saved statistics are empty."""
    training = bool(ctx.get("training", False))
    found = _batch_norm(ctx, training)
    none = ctx.b.constant(np.zeros(0, found[0].type.dtype.numpy))
    return found if training else [found[0], none, none]


@converts("aten._native_batch_norm_legit.no_stats")
def native_no_statistics(ctx: NodeContext) -> Sequence[Value]:
    return _batch_norm(ctx, True)


def _batch_norm(ctx: NodeContext, training: bool) -> list[Value]:
    b = ctx.b
    x = ctx.value("input" if "input" in ctx.node.args else "self")
    if x.type.rank < 2:
        raise ctx.unsupported(f"expected a batch of channels, got {x.type}")
    parameters, epsilon = _parameters(ctx, x), float(ctx.get("eps", 1e-5))
    has_statistics = ctx.has("running_mean")
    if not training and not has_statistics:
        raise ctx.unsupported("batch normalization without running statistics outside of training")
    if training and (not ctx.trainable or not has_statistics):
        return _by_batch(ctx, x, parameters, epsilon)
    statistics = [ctx.value("running_mean"), ctx.value("running_var")]
    kept = 1 - float(ctx.get("momentum", 0.1))
    if ctx.trainable and not training:
        return [_frozen(ctx, x, parameters, statistics, epsilon)]
    if training:
        if any(v.role is not Role.WEIGHT or v in ctx.state.statistics for v in statistics):
            raise ctx.unsupported("batch normalization that runs twice on the same running statistics in a step")
        ctx.state.statistics.update(statistics)
    return [b.op("batch_norm", [x, *parameters, *statistics], epsilon=epsilon, momentum=kept)]


def _frozen(ctx: NodeContext, x: Value, parameters: Sequence[Value], statistics: Sequence[Value], eps: float) -> Value:
    """Batch normalization by statistics that a training step leaves as they are."""
    b, wide = ctx.b, widen(ctx.b, x)
    center, variance = (_per_channel(ctx, widen(b, v), x) for v in statistics)
    scale, bias = (_per_channel(ctx, widen(b, v), x) for v in parameters)
    factor = b.op("mul", [scale, b.op("rsqrt", [b.op("add", [variance, number(ctx, eps, variance)])])])
    return cast(b, b.op("add", [b.op("mul", [b.op("sub", [wide, center]), factor]), bias]), x.type.dtype)


def _by_batch(ctx: NodeContext, x: Value, parameters: Sequence[Value], epsilon: float) -> list[Value]:
    """Normalization by the batch's own statistics, which move the running ones, if there are any."""
    b = ctx.b
    y, center, inverse, variance = b.multi("batch_norm_training", [x, *parameters], epsilon=epsilon).results
    if ctx.has("running_mean"):
        count = x.type.elements // x.type.shape[1]
        momentum = float(ctx.get("momentum", 0.1))
        unbiased = b.op("mul", [variance, number(ctx, count / max(count - 1, 1), variance)])
        for name, new in (("running_mean", center), ("running_var", unbiased)):
            old = ctx.handle(name)
            moved = b.op("mul", [cast(b, old.read(b), new.type.dtype), number(ctx, 1 - momentum, new)])
            write(ctx, old, b.op("add", [moved, b.op("mul", [new, number(ctx, momentum, new)])]))
    return [y, center, inverse]


@converts("aten.instance_norm.default")
def instance_norm(ctx: NodeContext) -> Value:
    x = ctx.value("input")
    if not ctx.get("use_input_stats", True):
        raise ctx.unsupported("instance normalization by running statistics")
    n, c, *rest = x.type.shape
    y = _grouped(ctx, x, n * c, float(ctx.get("eps", 1e-5)))
    return _affine(ctx, y)


def _grouped(ctx: NodeContext, x: Value, rows: int, epsilon: float) -> Value:
    """x with the mean and variance of each of `rows` equal parts taken away."""
    flat = reshaped(ctx.b, x, (rows, x.type.elements // max(rows, 1)))
    return reshaped(ctx.b, ctx.b.op("layer_norm", [flat], axis=1, epsilon=epsilon), x.type.shape)


def _affine(ctx: NodeContext, y: Value) -> Value:
    """Scale and bias of each channel, those that there are."""
    b = ctx.b
    if ctx.has("weight"):
        y = b.op("mul", [y, cast(b, _per_channel(ctx, ctx.value("weight"), y), y.type.dtype)])
    if ctx.has("bias"):
        y = b.op("add", [y, cast(b, _per_channel(ctx, ctx.value("bias"), y), y.type.dtype)])
    return y


@converts("aten.group_norm.default")
def group_norm(ctx: NodeContext) -> Value:
    x, groups = ctx.value("input"), int(ctx.get("num_groups"))
    return _affine(ctx, _grouped(ctx, x, x.type.shape[0] * groups, float(ctx.get("eps", 1e-5))))


@converts("aten.native_group_norm.default")
def native_group_norm(ctx: NodeContext) -> Sequence[Value]:
    x, groups = ctx.value("input"), int(ctx.get("group"))
    n = x.type.shape[0]
    y = _affine(ctx, _grouped(ctx, x, n * groups, float(ctx.get("eps", 1e-5))))
    flat = reshaped(ctx.b, x, (n, groups, x.type.elements // (n * groups)))
    return [y, *_statistics(ctx, flat, (2,), False)]


def _statistics(ctx: NodeContext, x: Value, axes: Sequence[int], keep: bool) -> list[Value]:
    """Mean and inverse deviation."""
    b = ctx.b
    variance, center = variance_of(ctx, widen(b, x), axes, 0, keep)
    epsilon = number(ctx, float(ctx.get("eps", 1e-5)), variance)
    return [center, b.op("rsqrt", [b.op("add", [variance, epsilon])])]


def _layer_norm(ctx: NodeContext, x: Value) -> Value:
    shape = ctx.ints("normalized_shape")
    axis = x.type.rank - len(shape)
    operands = [x]
    if ctx.has("weight") or ctx.has("bias"):
        one = np.ones(shape, x.type.dtype.numpy)
        operands.append(ctx.value("weight") if ctx.has("weight") else ctx.b.constant(one))
    if ctx.has("bias"):
        operands.append(ctx.value("bias"))
    return ctx.b.op("layer_norm", operands, axis=axis, epsilon=float(ctx.get("eps", 1e-5)))


@converts("aten.layer_norm.default")
def layer_norm(ctx: NodeContext) -> Value:
    return _layer_norm(ctx, ctx.value("input"))


@converts("aten.native_layer_norm.default")
def native_layer_norm(ctx: NodeContext) -> Sequence[Value]:
    x = ctx.value("input")
    axes = range(x.type.rank - len(ctx.ints("normalized_shape")), x.type.rank)
    return [_layer_norm(ctx, x), *_statistics(ctx, x, tuple(axes), True)]


@converts("aten.rms_norm.default")
def rms_norm(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("input")
    wide = widen(b, x)
    axes = range(x.type.rank - len(ctx.ints("normalized_shape")), x.type.rank)
    epsilon = ctx.get("eps")
    epsilon = float(epsilon) if epsilon is not None else float(np.finfo(wide.type.dtype.numpy).eps)
    power = mean(b, square(ctx, wide), tuple(axes), True)
    found = b.op("mul", [wide, b.op("rsqrt", [b.op("add", [power, number(ctx, epsilon, power)])])])
    if ctx.has("weight"):
        found = b.op("mul", [found, cast(b, ctx.value("weight"), found.type.dtype)])
    return cast(b, found, ctx.out_dtype(x.type.dtype))


@converts("aten._weight_norm_interface.default", "aten._weight_norm.default")
def weight_norm(ctx: NodeContext) -> list[Value] | Value:
    """v scaled so that each of its slices along an axis has the norm that g says."""
    b, v, g = ctx.b, ctx.value("v"), ctx.value("g")
    dim = int(ctx.get("dim", 0))
    # -1 is no last axis here, but what weight_norm(dim=None) says: one norm of all.
    axes = tuple(a for a in range(v.type.rank) if dim == -1 or a != ctx.axis(dim, v.type.rank))
    total = b.op("reduce_sum", [square(ctx, widen(b, v))], axes=axes, keepdims=True)
    norm = b.op("sqrt", [total])
    w = b.op("mul", [v, cast(b, b.op("div", [widen(b, g), norm]), v.type.dtype)])
    return [w, norm] if "interface" in ctx.node.target else w
