# SPDX-License-Identifier: Apache-2.0
"""batch_norm: normalization per channel with given statistics (Ioffe and Szegedy 2015, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.axes import number_of
from .shared.casts import cast, widen
from .shared.common import compute_dtype, count
from .shared.derivatives import scaled, sum_to
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 5)
    x = operands[0]
    if x.rank < 2 or not x.dtype.is_float:
        raise OpError(f"expected x [N, C, ...] of floats, got {x}")
    for what, given in zip(("scale", "bias", "mean", "variance"), operands[1:]):
        if given.shape != x.shape[1:2] or not given.dtype.is_float:
            raise OpError(f"expected a {what} of floats [{x.shape[1]}], got {given}")
    number_of(attrs, "epsilon")
    number_of(attrs, "momentum")
    return [x]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x = inputs[0]
    wide = compute_dtype(results[0].dtype).numpy
    spread = (1, -1, *[1] * (x.ndim - 2))
    scale, bias, mean, variance = (v.astype(wide).reshape(spread) for v in inputs[1:])
    factor = scale / np.sqrt(variance + wide.type(number_of(attrs, "epsilon")))
    return [((x.astype(wide) - mean) * factor + bias).astype(x.dtype)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    x = widen(b, op.operands[0])
    scale, bias, mean, _ = (per_channel(b, v, x) for v in op.operands[1:])
    factor = b.op("mul", [scale, inverse_deviation(b, op, x)])
    found = b.op("add", [b.op("mul", [b.op("sub", [x, mean]), factor]), bias])
    return [cast(b, found, op.result.type.dtype)]


def per_channel(b: IRBuilder, v: Value, x: Value) -> Value:
    """A value [C] in the type of x [N, C, ...], shaped to broadcast against it."""
    shape = (1, x.type.shape[1], *[1] * (x.type.rank - 2))
    return b.op("reshape", [cast(b, v, x.type.dtype)], shape=shape)


def inverse_deviation(b: IRBuilder, op: Op, x: Value) -> Value:
    """1 / sqrt(variance + epsilon), shaped like `per_channel`."""
    epsilon = b.scalar(number_of(op.attrs, "epsilon"), x.type.dtype)
    return b.op("rsqrt", [b.op("add", [per_channel(b, op.operands[4], x), epsilon])])


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x and all parameters. The statistics are operands like others: fixed where nothing makes them."""
    (g,) = grads
    if g is None:
        return [None] * 5
    x, g = widen(b, op.operands[0]), widen(b, g)
    scale, mean = (per_channel(b, op.operands[k], x) for k in (1, 3))
    inverse = inverse_deviation(b, op, x)
    of_x = cast(b, b.op("mul", [g, b.op("mul", [scale, inverse])]), op.operands[0].type.dtype)
    along = b.op("mul", [g, b.op("mul", [b.op("sub", [x, mean]), inverse])])
    flat = TensorType(x.type.dtype, scale.type.shape)
    of_scale, of_bias = (sum_to(b, v, flat) for v in (along, g))
    slope = b.op("mul", [scale, inverse])
    of_mean = b.op("neg", [b.op("mul", [slope, of_bias])])
    of_variance = scaled(b, b.op("mul", [b.op("mul", [slope, inverse]), of_scale]), -0.5)
    found = [b.op("reshape", [v], shape=(x.type.shape[1],)) for v in (of_scale, of_bias, of_mean, of_variance)]
    return [of_x, *(cast(b, v, operand.type.dtype) for v, operand in zip(found, op.operands[1:]))]


register(
    OpDef(
        name="batch_norm",
        doc="(x - mean) / sqrt(variance + epsilon) * scale + bias, per channel of x [N, C, ...].\n\n"
        "Operands x, scale, bias, mean and variance, all but x of shape [C]. Attributes `epsilon`, and `momentum`: the\n"
        "share of the old running statistics that a training step keeps. Half precision is computed in f32.",
        spec="https://onnx.ai/onnx/operators/onnx__BatchNormalization.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=lambda op: 4 * op.result.type.elements,
        lower=Decompose(decompose),
        library=(),
        traits=frozenset({Trait.CHEAP}),
    )
)
