# SPDX-License-Identifier: Apache-2.0
"""det: determinants of small square matrices, by cofactors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.derivatives import spread
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, register
from .shared.window import require_count

LARGEST = 4
"""Cofactor expansion grows with the factorial of the size."""


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    (x,) = operands
    if x.dtype not in (DType.F32, DType.F64):
        raise OpError(f"expected an operand of f32 or f64, got {x}")
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not 1 <= x.shape[-1] <= LARGEST:
        raise OpError(f"expected square matrices of 1 to {LARGEST} rows on the last two axes, got {x}")
    return [x.with_shape(x.shape[:-2])]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (x,) = inputs

    def minor(row: int, columns: Sequence[int]) -> Array:
        if len(columns) == 1:
            return x[..., row, columns[0]]
        total = x[..., row, columns[0]] * minor(row + 1, columns[1:])
        for k in range(1, len(columns)):
            part = x[..., row, columns[k]] * minor(row + 1, [*columns[:k], *columns[k + 1 :]])
            total = total - part if k % 2 else total + part
        return total

    return [minor(0, list(range(x.shape[-1])))]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    size = op.operands[0].type.shape[-1]

    def body(*index: Expr) -> Expr:
        def minor(row: int, columns: Sequence[int]) -> Expr:
            if len(columns) == 1:
                return inputs[0][(*index, row, columns[0])]
            total = inputs[0][(*index, row, columns[0])] * minor(row + 1, columns[1:])
            for k in range(1, len(columns)):
                part = inputs[0][(*index, row, columns[k])] * minor(row + 1, [*columns[:k], *columns[k + 1 :]])
                total = total - part if k % 2 else total + part
            return total

        return minor(0, list(range(size)))

    return [b.compute(op.result.type, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """The matrix of cofactors, which is there for singular matrices too (Jacobi's formula)."""
    (g,) = grads
    if g is None:
        return [None]
    x = op.operands[0]
    lead, size = x.type.shape[:-2], x.type.shape[-1]
    if size == 1:
        return [b.op("reshape", [g], shape=x.type.shape)]
    rows, columns = x.type.rank - 2, x.type.rank - 1
    minors = []
    for i in range(size):
        without_row = b.op("gather", [x, b.constant(np.delete(np.arange(size), i))], axis=rows)
        for j in range(size):
            part = b.op("gather", [without_row, b.constant(np.delete(np.arange(size), j))], axis=columns)
            minors.append(b.op("reshape", [b.op("det", [part])], shape=(*lead, 1)))
    matrix = b.op("reshape", [b.op("concat", minors, axis=rows)], shape=x.type.shape)
    signs = (-1.0) ** np.add.outer(np.arange(size), np.arange(size))
    cofactors = b.op("mul", [matrix, b.constant(signs.astype(x.type.dtype.numpy))])
    return [b.op("mul", [spread(b, g, x.type, (rows, columns)), cofactors])]


def flops(op: Op) -> int:
    return op.result.type.elements * 3 * math.factorial(op.operands[0].type.shape[-1])


register(
    OpDef(
        name="det",
        doc="Determinants of x [..., n, n] (f32 or f64, n at most 4): a tensor of the leading axes.",
        spec="https://onnx.ai/onnx/operators/onnx__Det.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(),
    )
)
