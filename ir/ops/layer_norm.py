# SPDX-License-Identifier: Apache-2.0
"""layer_norm: scale to mean zero and variance one over the trailing axes (Ba et al., 2016, equation 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .reduce import mean
from .shared.axes import axis_of, number_of
from .shared.casts import HALF, cast, widen
from .shared.common import compute_dtype
from .shared.derivatives import again, sum_to, widen_again
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register


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
        if not fits or given.dtype not in (x.dtype, compute_dtype(x.dtype)):
            raise OpError(f"expected a {what} that broadcasts to {x.with_shape(normalized)}, got {given}")
    return [x]


def normalize(b: IRBuilder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and 1 / sqrt(variance + epsilon), over `axes` kept as extent 1.

    In `x`'s element type; of half precision, in f32, which each reader makes for itself. The variance is the mean of squared
    distances from the mean (two passes), which does not cancel as the difference of squares does.
    """
    center = mean(b, widen_again(b, x, 11), axes, keepdims=True)
    # The other way round than below: two ops, each fused into its only reader, where one would need bytes of x's size.
    distance = b.op("sub", [center, widen_again(b, x, 12)])
    variance = mean(b, b.op("mul", [distance, distance]), axes, keepdims=True)
    spread = b.op("sqrt", [b.op("add", [variance, b.scalar(epsilon, variance.type.dtype)])])
    inverse = b.op("reciprocal", [spread])
    return b.op("mul", [b.op("sub", [widen_again(b, x, 13), center]), inverse]), center, inverse


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    x, *parameters = op.operands
    axis = axis_of(op.attrs, x.type)
    found, _, _ = normalize(b, x, range(axis, x.type.rank), number_of(op.attrs, "epsilon"))
    for name, parameter in zip(("mul", "add"), parameters):
        found = b.op(name, [found, widen(b, parameter)])
    return [cast(b, found, x.type.dtype)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x and scale; mean and deviation are recomputed, or merged with those of the forward pass.

    With h = g scale, d = x - mean, r = 1 / deviation and means over the normalized axes:
    dx = r (h - mean(h) - d r^2 mean(h d)).
    """
    (g,) = grads
    if g is None:
        return [None] * len(op.operands)
    x = op.operands[0]
    axes = tuple(range(axis_of(op.attrs, x.type), x.type.rank))
    _, center, inverse = normalize(b, x, axes, number_of(op.attrs, "epsilon"))

    def distance(time: int) -> Value:
        return again(b, "sub", [widen_again(b, x, time), center], time)

    def arriving(time: int) -> Value:
        g_wide = widen_again(b, g, time)
        return again(b, "mul", [g_wide, widen(b, op.operands[1])], time) if len(op.operands) > 1 else g_wide

    first = mean(b, arriving(1), axes, keepdims=True)
    second = mean(b, b.op("mul", [arriving(2), distance(2)]), axes, keepdims=True)
    slope = b.op("mul", [second, b.op("mul", [inverse, inverse])])
    inner = b.op("sub", [b.op("sub", [arriving(3), first]), b.op("mul", [distance(3), slope])])
    found = [cast(b, b.op("mul", [inner, inverse]), x.type.dtype)]
    if len(op.operands) > 1:
        normalized = b.op("mul", [distance(4), inverse])
        found.append(sum_to(b, b.op("mul", [widen_again(b, g, 4), normalized]), op.operands[1].type))
    if len(op.operands) > 2:
        found.append(sum_to(b, widen_again(b, g, 5), op.operands[2].type))
    return found


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
        "Attributes `axis` and `epsilon`. Half precision is computed in f32; scale and bias may then be f32.",
        spec="https://onnx.ai/onnx/operators/onnx__LayerNormalization.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=lambda op: 8 * op.result.type.elements,
        lower=Decompose(decompose),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)
