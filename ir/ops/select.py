# SPDX-License-Identifier: Apache-2.0
"""select: one of two operands by a condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from .base import Attrs, Builder, Expr, OpDef, Trait, register, result_elements
from .common import broadcast_shapes, count, elementwise, elementwise_in_place, same_dtype


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


register(
    OpDef(
        name="select",
        doc="The second operand where the first, a bool, is true, else the third.\n\n"
        "All three are broadcast numpy-style; the last two have one element type, which is the result's.",
        spec="https://onnx.ai/onnx/operators/onnx__Where.html",
        infer=infer,
        evaluate=evaluate,
        gradient=None,
        in_place=elementwise_in_place,
        view=None,
        slices=None,
        flops=result_elements,
        lower=elementwise(element, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE, Trait.CHEAP}),
    )
)
