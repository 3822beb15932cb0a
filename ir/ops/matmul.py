# SPDX-License-Identifier: Apache-2.0
"""matmul: matrix product over the last two axes, numpy-style broadcasting over the leading ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .library.cpu import MATMUL_CPU, PACKED_MATMUL_CPU
from .library.cuda_matmul import MATMUL_CUDA
from .shared.casts import cast
from .shared.derivatives import sum_to
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.window import accumulator, flag, require_count, require_numeric


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
    # As they lie in an arena: which way BLAS sums up, and so the last bits, depends on the strides.
    return np.asarray(np.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b)))


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


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    if g is None:
        return [None, None]
    x, y = (cast(b, v, g.type.dtype) for v in op.operands)
    t_x, t_y = flag(op.attrs, "transpose_a", False), flag(op.attrs, "transpose_b", False)

    def product(p: Value, q: Value, t_p: bool, t_q: bool, of: Value) -> Value:
        return sum_to(b, b.op("matmul", [p, q], transpose_a=t_p, transpose_b=t_q), of.type)

    # With X and Y as they enter the product: dX = G Y^T and dY = X^T G, transposed where the operand is.
    of_x = product(y, g, t_y, True, op.operands[0]) if t_x else product(g, y, False, not t_y, op.operands[0])
    if y.type.rank == 2 and not t_x and x.type.rank > 2:  # One product instead of a sum of many.
        x, g = (b.op("reshape", [v], shape=(math.prod(v.type.shape[:-1]), v.type.shape[-1])) for v in (x, g))
    of_y = product(g, x, True, t_x, op.operands[1]) if t_y else product(x, g, not t_x, False, op.operands[1])
    return [of_x, of_y]


register(
    OpDef(
        name="matmul",
        doc="Matrix product of a [..., M, K] and b [..., K, N]; the leading axes broadcast.\n\n"
        "Attributes `transpose_a`, `transpose_b` (default false): the operand's last two axes are exchanged. Integer\n"
        "products wrap. f16 and bf16 operands accumulate in f32 and give an f32 result, other types their own.",
        spec="https://onnx.ai/onnx/operators/onnx__MatMul.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(MATMUL_CPU, PACKED_MATMUL_CPU, MATMUL_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)
