# SPDX-License-Identifier: Apache-2.0
"""batch_norm_training: scale each channel to the batch's mean zero and variance one (Ioffe and Szegedy, 2015, alg. 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.axes import number_of
from .shared.casts import cast, widen
from .shared.derivatives import again, scaled, widen_again
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register
from .shared.window import accumulator, require_count


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 3)
    x = operands[0]
    number_of(attrs, "epsilon")
    if x.rank < 2 or not x.dtype.is_float:
        raise OpError(f"expected floats [N, C, ...], got {x}")
    if x.elements // max(x.shape[1], 1) == 0:
        raise OpError(f"expected at least one element per channel, got {x}")
    statistic = TensorType(accumulator(x.dtype), (x.shape[1],))
    for what, given in zip(("scale", "bias"), operands[1:]):
        if given.shape != statistic.shape or given.dtype not in (x.dtype, statistic.dtype):
            raise OpError(f"expected a {what} {statistic} or of the type of {x}, got {given}")
    return [x, statistic, statistic, statistic]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    wide = results[1].dtype.numpy
    x, scale, bias = (v.astype(wide, copy=False) for v in inputs)
    axes = _reduced(results[0])
    column = (-1, *[1] * (x.ndim - 2))
    mean = np.mean(x, axis=axes)
    distance = x - mean.reshape(column)
    variance = np.mean(distance * distance, axis=axes)
    inverse = (1 / np.sqrt(variance + wide.type(number_of(attrs, "epsilon")))).astype(wide)
    y = distance * (scale * inverse).reshape(column) + bias.reshape(column)
    return [y.astype(results[0].dtype.numpy), mean, inverse, variance]


def _reduced(x: TensorType) -> tuple[int, ...]:
    return tuple(d for d in range(x.rank) if d != 1)


def _count(x: TensorType) -> int:
    """Elements of a channel."""
    return math.prod(x.shape[d] for d in _reduced(x))


def _column(b: IRBuilder, statistic: Value, x: TensorType) -> Value:
    """One number per channel, shaped to broadcast against x."""
    return b.op("reshape", [statistic], shape=(x.shape[1], *[1] * (x.rank - 2)))


def _channel_sum(b: IRBuilder, x: Value) -> Value:
    return b.op("reduce_sum", [x], axes=_reduced(x.type), keepdims=False)


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    x, scale, bias = op.operands
    share = 1 / _count(x.type)
    mean = scaled(b, _channel_sum(b, widen_again(b, x, 1)), share)
    center = _column(b, mean, x.type)
    # The other way round than below: two ops, each fused into its only reader, where one would need bytes of x's size.
    distance = b.op("sub", [center, widen_again(b, x, 2)])
    variance = scaled(b, _channel_sum(b, b.op("mul", [distance, distance])), share)
    deviation = b.op("sqrt", [b.op("add", [variance, b.scalar(number_of(op.attrs, "epsilon"), variance.type.dtype)])])
    inverse = b.op("reciprocal", [deviation])
    factor = _column(b, b.op("mul", [widen(b, scale), inverse]), x.type)
    y = b.op("mul", [b.op("sub", [widen_again(b, x, 3), center]), factor])
    y = b.op("add", [y, _column(b, widen(b, bias), x.type)])
    return [cast(b, y, x.type.dtype), mean, inverse, variance]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x, scale, mean and inverse deviation r, and nothing else of x's size.

    With d = x - mean and N elements per channel: dbias = sum(g), dscale = r sum(g d), and
    dx = scale r (g - dbias / N - d r dscale / N). What arrives in the statistics adds to that per channel.
    """
    x, scale, bias = op.operands
    _, mean, inverse, _ = op.results
    g, g_mean, g_inverse, g_variance = grads
    share = 1 / _count(x.type)
    center = _column(b, mean, x.type)

    def distance(time: int) -> Value:
        return again(b, "sub", [widen_again(b, x, time), center], time)

    # dx = factor g - slope d - shift, with one number per channel each.
    slope: Value | None = None
    shift: Value | None = None
    found: list[Value | None] = [None, None, None]
    if g is not None:
        of_bias = _channel_sum(b, widen_again(b, g, 1))
        product = _channel_sum(b, b.op("mul", [widen_again(b, g, 2), distance(1)]))
        of_scale = b.op("mul", [product, inverse])
        factor = b.op("mul", [widen(b, scale), inverse])
        shift = scaled(b, b.op("mul", [factor, of_bias]), share)
        slope = scaled(b, b.op("mul", [b.op("mul", [factor, inverse]), of_scale]), share)
        found[1:] = [cast(b, of_scale, scale.type.dtype), cast(b, of_bias, bias.type.dtype)]
    if g_mean is not None:
        shift = _plus(b, shift, scaled(b, g_mean, -share))
    if g_inverse is not None:  # The inverse deviation r = (variance + epsilon)^(-1/2) falls with -r^3 / 2.
        cube = b.op("mul", [b.op("mul", [inverse, inverse]), inverse])
        slope = _plus(b, slope, scaled(b, b.op("mul", [g_inverse, cube]), share))
    if g_variance is not None:
        slope = _plus(b, slope, scaled(b, g_variance, -2 * share))
    terms: list[Value] = []
    if slope is not None:
        terms.append(b.op("mul", [distance(2), _column(b, slope, x.type)]))
    if shift is not None:
        terms.append(_column(b, shift, x.type))
    total = terms[0] if len(terms) == 1 else b.op("add", terms)
    if g is not None:
        total = b.op("sub", [b.op("mul", [widen_again(b, g, 3), _column(b, factor, x.type)]), total])
    else:
        total = b.op("neg", [total])
    if total.type.shape != x.type.shape:
        total = b.op("broadcast", [total], shape=x.type.shape)
    found[0] = cast(b, total, x.type.dtype)
    return found


def _plus(b: IRBuilder, sum: Value | None, term: Value) -> Value:
    return term if sum is None else b.op("add", [sum, term])


register(
    OpDef(
        name="batch_norm_training",
        doc="(x - mean) / sqrt(variance + epsilon) * scale + bias with the mean and variance of each channel of the batch.\n\n"
        "Operands x [N, C, ...], scale [C] and bias [C]; attribute `epsilon`. Results: y; the mean,\n"
        "1 / sqrt(variance + epsilon) and the variance, each [C] and f32 for half precision. The variance is that of the batch (divided by\n"
        "the number n of elements); running statistics take n / (n - 1) times it.",
        spec="https://onnx.ai/onnx/operators/onnx__BatchNormalization.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=lambda op: 7 * op.operands[0].type.elements,
        lower=Decompose(decompose),
        library=(),
        traits=frozenset({Trait.REDUCTION, Trait.CHEAP}),
    )
)
