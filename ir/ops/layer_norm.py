# SPDX-License-Identifier: Apache-2.0
"""layer_norm: scale to mean zero and variance one over the trailing axes (Ba et al., 2016, equation 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .axes import axis_of, number_of
from .base import Attrs, Decompose, OpDef, Trait, register
from .casts import HALF, cast, widen
from .reduce import mean


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    if not 1 <= len(operands) <= 3:
        raise OpError(f"expected the operands x, scale and bias (the last two may be missing), got {len(operands)}")
    x = operands[0]
    axis = axis_of(attrs, x)
    number_of(attrs, "epsilon")
    if not x.dtype.is_float:
        raise OpError(f"expected floats, got {x}")
    normalized = x.shape[axis:]
    for what, given in zip(("scale", "bias"), operands[1:]):
        try:
            fits = np.broadcast_shapes(given.shape, normalized) == normalized
        except ValueError:
            fits = False
        if not fits or given.dtype is not x.dtype:
            raise OpError(f"expected a {what} that broadcasts to {x.with_shape(normalized)}, got {given}")
    return [x]


def normalize(b: IRBuilder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and 1 / sqrt(variance + epsilon), over `axes` kept as extent 1.

    In `x`'s element type. The variance is the mean of squared distances from the mean (two passes), which does not
    cancel as the difference of squares does.
    """
    center = mean(b, x, axes, keepdims=True)
    distance = b.op("sub", [x, center])
    variance = mean(b, b.op("mul", [distance, distance]), axes, keepdims=True)
    spread = b.op("sqrt", [b.op("add", [variance, b.scalar(epsilon, x.type.dtype)])])
    inverse = b.op("reciprocal", [spread])
    return b.op("mul", [distance, inverse]), center, inverse


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    x, *parameters = op.operands
    axis = axis_of(op.attrs, x.type)
    found, _, _ = normalize(b, widen(b, x), range(axis, x.type.rank), number_of(op.attrs, "epsilon"))
    for name, parameter in zip(("mul", "add"), parameters):
        found = b.op(name, [found, widen(b, parameter)])
    return [cast(b, found, x.type.dtype)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    dtype = results[0].dtype
    x, *parameters = [i.astype(np.float32) if dtype in HALF else i for i in inputs]
    axes = tuple(range(int(attrs["axis"]), x.ndim))  # type: ignore[arg-type]
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = x - np.mean(x, axis=axes, keepdims=True)
        variance = np.mean(distance * distance, axis=axes, keepdims=True)
        found = distance / np.sqrt(variance + x.dtype.type(number_of(attrs, "epsilon")))
    if parameters:
        found = found * parameters[0]
    if len(parameters) > 1:
        found = found + parameters[1]
    return [found.astype(dtype.numpy)]


register(
    OpDef(
        name="layer_norm",
        doc="(x - mean) / sqrt(variance + epsilon) * scale + bias, over all axes from `axis` on.\n\n"
        "Operands x, and scale and bias that broadcast to the normalized shape (bias only together with scale).\n"
        "Attributes `axis` and `epsilon`. Half precision is computed in f32.",
        spec="https://onnx.ai/onnx/operators/onnx__LayerNormalization.html",
        infer=infer,
        evaluate=evaluate,
        gradient=None,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=lambda op: 8 * op.result.type.elements,
        lower=Decompose(decompose),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)
