# SPDX-License-Identifier: Apache-2.0
"""Normalization layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.ops.layer_norm import normalize
from memc.ir.ops.reduce import mean
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from .reduction import resolve_axis, wants


def per_channel(ctx: NodeContext, index: int, shape: Sequence[int], dtype: DType) -> Value:
    """Input `index` of shape [c] (or [c, ...]) as `dtype`, shaped to broadcast against `shape` [n, c, ...]."""
    given = ctx.type(index).shape
    if len(shape) < 2 or not given or given != tuple(shape[1 : 1 + len(given)]):
        raise ctx.unsupported(f"expected input {index} with the channels of {list(shape)}, got {ctx.type(index)}")
    aligned = given + (1,) * (len(shape) - 1 - len(given))
    data = ctx.known(index)
    if data is not None:
        return ctx.b.constant(data.reshape(aligned).astype(dtype.numpy), name=ctx.node.input[index] or None)
    return ctx.b.op("reshape", [cast(ctx.b, ctx.value(index), dtype)], shape=aligned)


def scaled(ctx: NodeContext, x: Value, scale: int, bias: int, dtype: DType) -> Value:
    """x * scale + bias, per channel, as `dtype`. `scale` and `bias` are input numbers."""
    factor = per_channel(ctx, scale, x.type.shape, x.type.dtype)
    shift = per_channel(ctx, bias, x.type.shape, x.type.dtype)
    return cast(ctx.b, ctx.b.op("add", [ctx.b.op("mul", [x, factor]), shift]), dtype)


@imports("BatchNormalization")
def batch_normalization(ctx: NodeContext) -> Sequence[Known]:
    b, dtype = ctx.b, ctx.type(0).dtype
    if ctx.type(0).rank < 2:
        raise ctx.unsupported(f"expected rank 2 or more, got {ctx.type(0)}")
    epsilon = float(ctx.attr("epsilon", 1e-5))
    training = bool(ctx.attr("training_mode", 0)) if ctx.opset >= 14 else any(wants(ctx, i) for i in range(1, 5))
    if training:
        return _batch_normalization_training(ctx, epsilon)
    if ctx.trainable and all(ctx.type(i).shape == ctx.type(0).shape[1:2] for i in range(1, 5)):
        kept = float(ctx.attr("momentum", 0.9))
        return [b.op("batch_norm", [ctx.value(i) for i in range(5)], epsilon=epsilon, momentum=kept)]
    x = widen(b, ctx.value(0))
    scale, bias, center, variance = (ctx.known(i) for i in range(1, 5))
    if scale is not None and bias is not None and center is not None and variance is not None:
        factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
        shift = bias.astype(np.float64) - center.astype(np.float64) * factor
        aligned = factor.shape + (1,) * (x.type.rank - 1 - factor.ndim)
        if factor.shape != x.type.shape[1 : 1 + factor.ndim] or shift.shape != factor.shape:
            raise ctx.unsupported(f"expected scale and statistics for the channels of {x.type}")
        wide = x.type.dtype.numpy
        by = b.constant(factor.reshape(aligned).astype(wide), name=_stem(ctx, 1))
        found = b.op("mul", [x, by])
        found = b.op("add", [found, b.constant(shift.reshape(aligned).astype(wide), name=_stem(ctx, 2))])
        return [cast(b, found, dtype)]
    mean_value, variance_value = (per_channel(ctx, i, x.type.shape, x.type.dtype) for i in (3, 4))
    distance = b.op("sub", [x, mean_value])
    spread = b.op("sqrt", [b.op("add", [variance_value, b.scalar(epsilon, x.type.dtype)])])
    factor_value = b.op("div", [per_channel(ctx, 1, x.type.shape, x.type.dtype), spread])
    found = b.op("mul", [distance, factor_value])
    return [cast(b, b.op("add", [found, per_channel(ctx, 2, x.type.shape, x.type.dtype)]), dtype)]


def _stem(ctx: NodeContext, index: int) -> str | None:
    """A name for data folded from weights: the weight's, marked."""
    name = ctx.node.input[index]
    return f"{name}.folded" if name else None


def _batch_normalization_training(ctx: NodeContext, epsilon: float) -> Sequence[Known]:
    """Statistics of the batch; outputs Y, running mean and variance, and before opset 14 also the batch's own."""
    b, dtype = ctx.b, ctx.type(0).dtype
    x = widen(b, ctx.value(0))
    if not ctx.attr("spatial", 1):
        raise ctx.unsupported("training mode with spatial=0")
    axes = [d for d in range(x.type.rank) if d != 1]
    channels = (x.type.shape[1],)
    center = mean(b, x, axes, keepdims=True)
    distance = b.op("sub", [x, center])
    variance = mean(b, b.op("mul", [distance, distance]), axes, keepdims=True)
    spread = b.op("sqrt", [b.op("add", [variance, b.scalar(epsilon, x.type.dtype)])])
    y = scaled(ctx, b.op("div", [distance, spread]), 1, 2, dtype)
    momentum = float(ctx.attr("momentum", 0.9))
    running: list[Known] = []
    batch: list[Known] = []
    for index, found in ((3, center), (4, variance)):
        old = cast(b, ctx.value(index), x.type.dtype)
        new = b.op("reshape", [found], shape=channels)
        kept = b.op("mul", [old, b.scalar(momentum, x.type.dtype)])
        updated = b.op("add", [kept, b.op("mul", [new, b.scalar(1 - momentum, x.type.dtype)])])
        running.append(cast(b, updated, ctx.type(index).dtype))
        batch.append(cast(b, new, ctx.type(index).dtype))
    return [y, *running] if ctx.opset >= 14 else [y, *running, *batch]


@imports("InstanceNormalization")
def instance_normalization(ctx: NodeContext) -> Sequence[Known]:
    x = widen(ctx.b, ctx.value(0))
    found, _, _ = normalize(ctx.b, x, range(2, x.type.rank), float(ctx.attr("epsilon", 1e-5)))
    return [scaled(ctx, found, 1, 2, ctx.type(0).dtype)]


@imports("GroupNormalization")
def group_normalization(ctx: NodeContext) -> Sequence[Known]:
    b, shape, dtype = ctx.b, ctx.type(0).shape, ctx.type(0).dtype
    groups = int(ctx.attr("num_groups", 0))
    if len(shape) < 2 or groups <= 0 or shape[1] % groups:
        raise ctx.unsupported(f"expected num_groups that divides the channels of {ctx.type(0)}, got {groups}")
    grouped = (shape[0], groups, math.prod(shape[1:]) // groups)
    x = b.op("reshape", [widen(b, ctx.value(0))], shape=grouped)
    found, _, _ = normalize(b, x, [2], float(ctx.attr("epsilon", 1e-5)))
    if ctx.opset < 21:  # scale and bias are per group
        return [b.op("reshape", [scaled(ctx, found, 1, 2, dtype)], shape=shape)]
    return [scaled(ctx, b.op("reshape", [found], shape=shape), 1, 2, dtype)]


def _working(ctx: NodeContext) -> Value:
    """Input 0 in the precision of stage one: at least f32, whatever stash_type says."""
    return widen(ctx.b, ctx.value(0))


def _stashed(ctx: NodeContext, value: Value) -> Value:
    """A statistic as the type that attribute stash_type names (ONNX element type; 1, float, by default)."""
    types = {1: DType.F32, 10: DType.F16, 11: DType.F64, 16: DType.BF16}
    stash = int(ctx.attr("stash_type", 1))
    if stash not in types:
        raise ctx.unsupported(f"expected stash_type 1, 10, 11 or 16, got {stash}")
    return cast(ctx.b, value, types[stash])


@imports("LayerNormalization")
def layer_normalization(ctx: NodeContext) -> Sequence[Known]:
    b, x_type = ctx.b, ctx.type(0)
    axis = resolve_axis(ctx, ctx.attr("axis", -1), x_type.rank)
    epsilon = float(ctx.attr("epsilon", 1e-5))
    parameters = [i for i in (1, 2) if ctx.has(i)]
    plain = all(ctx.type(i).rank <= x_type.rank - axis and ctx.type(i).dtype is x_type.dtype for i in parameters)
    if plain and 2 not in parameters[:1] and not wants(ctx, 1) and not wants(ctx, 2):
        return [b.op("layer_norm", [ctx.value(i) for i in (0, *parameters)], axis=axis, epsilon=epsilon)]
    found, center, inverse = normalize(b, _working(ctx), range(axis, x_type.rank), epsilon)
    for i in parameters:
        found = b.op("mul" if i == 1 else "add", [found, cast(b, ctx.value(i), found.type.dtype)])
        _same_shape(ctx, found, i)
    return [cast(b, found, x_type.dtype), _stashed(ctx, center), _stashed(ctx, inverse)]


def _same_shape(ctx: NodeContext, found: Value, index: int) -> None:
    """Raises UnsupportedError if input `index` made the result larger than input 0."""
    if found.type.shape != ctx.type(0).shape:
        raise ctx.unsupported(f"expected input {index} to broadcast to {ctx.type(0)}, got {ctx.type(index)}")


def root_mean_square(b: IRBuilder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """x over the root of its mean square plus epsilon, and that root, over `axes` kept as extent 1."""
    square = mean(b, b.op("mul", [x, x]), axes, keepdims=True)
    spread = b.op("sqrt", [b.op("add", [square, b.scalar(epsilon, x.type.dtype)])])
    return b.op("div", [x, spread]), spread


def _rms(ctx: NodeContext) -> tuple[Value, Value]:
    b = ctx.b
    x = _working(ctx)
    axis = resolve_axis(ctx, ctx.attr("axis", -1), x.type.rank)
    normalized, spread = root_mean_square(b, x, range(axis, x.type.rank), float(ctx.attr("epsilon", 1e-5)))
    scale = ctx.value(1)
    found = b.op("mul", [normalized, cast(b, scale, x.type.dtype)])
    return cast(b, found, scale.type.dtype), b.op("reciprocal", [spread])


@imports("RMSNormalization")
def rms_normalization(ctx: NodeContext) -> Sequence[Known]:
    return [_rms(ctx)[0]]


@imports("SimplifiedLayerNormalization")
def simplified_layer_normalization(ctx: NodeContext) -> Sequence[Known]:
    """onnxruntime's name for RMS normalization, in the standard domain, with the inverse root as second output."""
    found, inverse = _rms(ctx)
    return [found, _stashed(ctx, inverse)]


@imports("MeanVarianceNormalization")
def mean_variance_normalization(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b
    x = widen(b, ctx.value(0))
    axes = [resolve_axis(ctx, int(a), x.type.rank) for a in ctx.attr("axes", (0, 2, 3))]
    distance = b.op("sub", [x, mean(b, x, axes, keepdims=True)])
    spread = b.op("sqrt", [mean(b, b.op("mul", [distance, distance]), axes, keepdims=True)])
    found = b.op("div", [distance, b.op("add", [spread, b.scalar(1e-9, x.type.dtype)])])
    return [cast(b, found, ctx.type(0).dtype)]


@imports("LpNormalization")
def lp_normalization(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b
    x = widen(b, ctx.value(0))
    axis, p = resolve_axis(ctx, ctx.attr("axis", -1), x.type.rank), ctx.attr("p", 2)
    if p not in (1, 2):
        raise ctx.unsupported(f"expected p 1 or 2, got {p}")
    powers = b.op("abs", [x]) if p == 1 else b.op("mul", [x, x])
    norm = b.op("reduce_sum", [powers], axes=(axis,), keepdims=True)
    norm = norm if p == 1 else b.op("sqrt", [norm])
    zero = b.scalar(0, x.type.dtype)
    found = b.op("select", [b.op("equal", [norm, zero]), zero, b.op("div", [x, norm])])
    return [cast(b, found, ctx.type(0).dtype)]
