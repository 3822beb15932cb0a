# SPDX-License-Identifier: Apache-2.0
"""matmul: matrix product over the last two axes, numpy-style broadcasting over the leading ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import TensorType
from .base import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .library_cpu import MATMUL_CPU
from .window import accumulator, flag, require_count, require_numeric


def _matrix(shape: tuple[int, ...], transposed: bool) -> tuple[int, int]:
    rows, columns = shape[-2:]
    return (columns, rows) if transposed else (rows, columns)


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 2)
    require_numeric(operands)
    a, b = operands
    if a.rank < 2 or b.rank < 2:
        raise OpError(f"expected operands of rank 2 or more, got {a} and {b}")
    m, k = _matrix(a.shape, flag(attrs, "transpose_a", False))
    k_b, n = _matrix(b.shape, flag(attrs, "transpose_b", False))
    if k != k_b:
        raise OpError(f"expected equal inner extents, got {k} and {k_b} (operands {a} and {b})")
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise OpError(f"expected leading axes that broadcast, got {a} and {b}") from None
    return [TensorType(accumulator(a.dtype), (*batch, m, n))]


def exact_product(a: Array, b: Array, depth: int) -> Array:
    """np.matmul; small integers go through f64, where it is exact and uses BLAS."""
    if a.dtype.kind in "iu" and a.size and b.size and depth:
        largest = [max(abs(int(v.max())), abs(int(v.min()))) for v in (a, b)]
        if largest[0] * largest[1] * depth < 2**53:
            exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
            return np.asarray(exact.astype(np.int64).astype(a.dtype))
    return np.asarray(np.matmul(a, b))


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    a, b = (v.astype(results[0].dtype.numpy, copy=False) for v in inputs)
    if flag(attrs, "transpose_a", False):
        a = a.swapaxes(-1, -2)
    if flag(attrs, "transpose_b", False):
        b = b.swapaxes(-1, -2)
    return [exact_product(a, b, a.shape[-1])]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    dtype = op.result.type.dtype
    transposed = [flag(op.attrs, "transpose_a", False), flag(op.attrs, "transpose_b", False)]
    depth = _matrix(op.operands[0].type.shape, transposed[0])[1]

    def element(which: int, batch: Sequence[Expr], row: Expr, column: Expr) -> Expr:
        shape = op.operands[which].type.shape
        lead = batch[len(batch) - (len(shape) - 2) :]
        index = [i if extent != 1 else 0 for i, extent in zip(lead, shape[:-2])]
        matrix = (column, row) if transposed[which] else (row, column)
        return b.cast(inputs[which][(*index, *matrix)], dtype)

    def body(*index: Expr) -> Expr:
        *batch, i, j = index
        return b.reduce("sum", [depth], lambda k: element(0, batch, i, k) * element(1, batch, k, j))

    return [b.compute(op.result.type, body)]


def flops(op: Op) -> int:
    depth = _matrix(op.operands[0].type.shape, flag(op.attrs, "transpose_a", False))[1]
    return 2 * op.result.type.elements * depth


register(
    OpDef(
        name="matmul",
        doc="Matrix product of a [..., M, K] and b [..., K, N]; the leading axes broadcast.\n\n"
        "Attributes `transpose_a`, `transpose_b` (default false): the operand's last two axes are exchanged. Integer\n"
        "products wrap. f16 and bf16 operands accumulate in f32 and give an f32 result, other types their own.",
        spec="https://onnx.ai/onnx/operators/onnx__MatMul.html",
        infer=infer,
        evaluate=evaluate,
        gradient=None,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(MATMUL_CPU,),
        traits=frozenset({Trait.REDUCTION}),
    )
)
