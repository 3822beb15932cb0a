# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax: exponentials along an axis, scaled to sum one; and the logarithm of that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.axes import axis_of, only
from .shared.casts import HALF, cast
from .shared.derivatives import again, widen_again
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    source = only(operands)
    axis_of(attrs, source)
    if not source.dtype.is_float:
        raise OpError(f"expected floats, got {source}")
    return [source]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType], log: bool) -> Sequence[Array]:
    axis = int(attrs["axis"])  # type: ignore[arg-type]
    dtype = results[0].dtype
    x = inputs[0].astype(np.float32) if dtype in HALF else inputs[0]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        powers = np.exp(shifted)
        total = np.sum(powers, axis=axis, keepdims=True)
        found = shifted - np.log(total) if log else powers / total
    return [found.astype(dtype.numpy)]


def decompose(b: IRBuilder, op: Op, log: bool) -> Sequence[Value]:
    if op.operands[0].type.dtype in HALF:
        return _decompose_half(b, op, log)
    # exp(x - max) is computed twice: fused into the sum and into the quotient it needs no bytes of its own.
    x = op.operands[0]
    axes = (axis_of(op.attrs, x.type),)
    shifted = b.op("sub", [x, b.op("reduce_max", [x], axes=axes, keepdims=True)])
    powers = b.op("exp", [shifted])
    total = b.op("reduce_sum", [powers], axes=axes, keepdims=True)
    found = b.op("sub", [shifted, b.op("log", [total])]) if log else b.op("div", [powers, total])
    return [found]


def _decompose_half(b: IRBuilder, op: Op, log: bool) -> Sequence[Value]:
    """Each reader recomputes its part from x, so that nothing in f32 is as large as x."""
    x = op.operands[0]
    axes = (axis_of(op.attrs, x.type),)
    greatest = b.op("reduce_max", [widen_again(b, x, 1)], axes=axes, keepdims=True)

    def shifted(time: int) -> Value:
        return again(b, "sub", [widen_again(b, x, time), greatest], time)

    total = b.op("reduce_sum", [again(b, "exp", [shifted(2)], 2)], axes=axes, keepdims=True)
    if log:
        found = b.op("sub", [shifted(3), b.op("log", [total])])
    else:
        found = b.op("div", [again(b, "exp", [shifted(3)], 3), total])
    return [cast(b, found, x.type.dtype)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None], log: bool) -> Sequence[Value | None]:
    """Reads the result only: dx = y (g - sum(g y)), and for the logarithm dx = g - exp(y) sum(g)."""
    (g,) = grads
    if g is None:
        return [None]
    axes = (axis_of(op.attrs, g.type),)
    terms, g_last, y = widen_again(b, g, 1), widen_again(b, g, 2), widen_again(b, op.result, 2)
    if not log:
        terms = b.op("mul", [terms, widen_again(b, op.result, 1)])
    total = b.op("reduce_sum", [terms], axes=axes, keepdims=True)
    if log:
        found = b.op("sub", [g_last, b.op("mul", [again(b, "exp", [y], 1), total])])
    else:
        found = b.op("mul", [y, b.op("sub", [g_last, total])])
    return [cast(b, found, g.type.dtype)]


def _define(name: str, formula: str, spec: str, log: bool) -> None:
    register(
        OpDef(
            name=name,
            doc=f"{formula}, with sums along one axis.\n\n"
            "Attribute `axis`. The maximum is subtracted first, so that nothing overflows; half precision is computed\n"
            "in f32. A row of only -inf gives nan.",
            spec=f"https://onnx.ai/onnx/operators/onnx__{spec}.html",
            infer=infer,
            evaluate=lambda inputs, attrs, results: evaluate(inputs, attrs, results, log),
            gradient=lambda b, op, grads: gradient(b, op, grads, log),
            in_place=lambda op: (0,),
            view=None,
            slices=None,
            flops=lambda op: 5 * op.result.type.elements,
            lower=Decompose(lambda b, op: decompose(b, op, log)),
            library=(),
            traits=frozenset({Trait.REDUCTION}),
        )
    )


_define("softmax", "exp(x) / sum(exp(x))", "Softmax", False)
_define("log_softmax", "x - log(sum(exp(x)))", "LogSoftmax", True)
