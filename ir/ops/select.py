# SPDX-License-Identifier: Apache-2.0
"""select: one of two operands by a condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import broadcast_shapes, count, elementwise, elementwise_in_place, same_dtype
from .shared.derivatives import sum_to
from .shared.op_def import Attrs, Builder, Expr, OpDef, Trait, register, result_elements


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 3)
    if operands[0].dtype is not DType.BOOL:
        raise OpError(f"expected a bool condition, got {operands[0]}")
    dtype = same_dtype(operands[1:])
    return [TensorType(dtype, broadcast_shapes(*(t.shape for t in operands)))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [np.where(inputs[0], inputs[1], inputs[2]).astype(results[0].dtype.numpy, copy=False)]


def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    return b.select(x[0], x[1], x[2])


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    if g is None:
        return [None, None, None]
    condition, x, y = op.operands
    zero = b.scalar(0, g.type.dtype)
    taken, left = b.op("select", [condition, g, zero]), b.op("select", [condition, zero, g])
    return [None, sum_to(b, taken, x.type), sum_to(b, left, y.type)]


register(
    OpDef(
        name="select",
        doc="The second operand where the first, a bool, is true, else the third.\n\n"
        "All three are broadcast numpy-style; the last two have one element type, which is the result's.",
        spec="https://onnx.ai/onnx/operators/onnx__Where.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=elementwise_in_place,
        view=None,
        slices=None,
        flops=result_elements,
        lower=elementwise(element, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE, Trait.CHEAP}),
    )
)
