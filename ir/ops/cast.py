# SPDX-License-Identifier: Apache-2.0
"""cast: conversion to another element type. bitcast: the same bits read as another type of the same size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import count, dtype_attr, elementwise, elementwise_in_place
from .shared.op_def import Attrs, Builder, Expr, OpDef, Trait, no_flops, register


def infer_cast(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    return [operands[0].with_dtype(dtype_attr(attrs, "to"))]


def evaluate_cast(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    source, to = DType.from_numpy(inputs[0].dtype), results[0].dtype
    with np.errstate(all="ignore"):
        data = inputs[0]
        for step in _steps(source, to):
            data = data.astype(step.numpy)
        return [data]


def element_cast(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    source, to = op.operands[0].type.dtype, op.result.type.dtype
    scalar = x[0]
    for step in _steps(source, to):
        if step is DType.BOOL and source is not DType.BOOL:
            scalar = b.not_equal(scalar, b.const(0, source))
        elif step is not source:
            scalar = b.cast(scalar, step)
        source = step
    return scalar


def _steps(source: DType, to: DType) -> Sequence[DType]:
    """The conversions to go through: a float out of the range of a narrow integer wraps, as ONNX's users expect of
    C casts, which neither numpy nor LLVM promises for a direct conversion."""
    steps = [DType.F32] if source in (DType.F16, DType.BF16) and to is not source else []
    if source.is_float and to.is_integer and (to.itemsize < 4 or to is DType.U32):
        steps.append(DType.I64)
    elif to in (DType.F16, DType.BF16) and not source.is_float:
        steps.append(DType.F32)
    return [*steps, to]


def infer_bitcast(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    to = dtype_attr(attrs, "to")
    if to.itemsize != operands[0].dtype.itemsize or DType.BOOL in (to, operands[0].dtype):
        raise OpError(
            f"expected a non-bool type of {operands[0].dtype.itemsize} bytes like {operands[0]}, got {to.value}"
        )
    return [operands[0].with_dtype(to)]


def evaluate_bitcast(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [np.ascontiguousarray(inputs[0]).view(results[0].dtype.numpy).reshape(results[0].shape)]


def element_bitcast(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    return b.bitcast(x[0], op.result.type.dtype)


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    source = op.operands[0].type.dtype
    return [None if g is None or not source.is_float else b.op("cast", [g], to=source)]


register(
    OpDef(
        name="cast",
        doc="Conversion to element type `to`.\n\n"
        "Float to integer truncates; to bool gives whether the element is not zero (NaN is not).",
        spec="https://onnx.ai/onnx/operators/onnx__Cast.html",
        infer=infer_cast,
        evaluate=evaluate_cast,
        gradient=gradient,
        in_place=elementwise_in_place,
        view=None,
        slices=None,
        flops=no_flops,
        lower=elementwise(element_cast, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE, Trait.CHEAP}),
    )
)

register(
    OpDef(
        name="bitcast",
        doc="The same bits as elements of type `to`, which has the operand's element size.\n\nNeither type is bool.",
        spec="https://onnx.ai/onnx/operators/onnx__BitCast.html",
        infer=infer_bitcast,
        evaluate=evaluate_bitcast,
        gradient=None,
        in_place=elementwise_in_place,
        view=lambda op: 0,
        slices=None,
        flops=no_flops,
        lower=elementwise(element_bitcast, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE, Trait.CHEAP}),
    )
)
