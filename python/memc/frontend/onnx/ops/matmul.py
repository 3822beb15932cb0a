# SPDX-License-Identifier: Apache-2.0
"""Matrix products and determinants. Einsum is in einsum.py."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen

from ..context import Known, NodeContext, imports


def product(b: IRBuilder, x: Value, y: Value, *, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """The matrix product in the operands' own type (half precision accumulates in f32)."""
    found = b.op("matmul", [x, y], transpose_a=transpose_a, transpose_b=transpose_b)
    return cast(b, found, x.type.dtype)


def numpy_product(ctx: NodeContext, x: Value, y: Value) -> Value:
    """numpy.matmul: an operand of rank 1 is a row on the left, a column on the right, and leaves no axis behind."""
    b = ctx.b
    if x.type.rank == 0 or y.type.rank == 0:
        raise ctx.unsupported(f"expected operands of rank 1 or more, got {x.type} and {y.type}")
    left, right = x.type.rank == 1, y.type.rank == 1
    if left:
        x = b.op("reshape", [x], shape=(1, x.type.shape[0]))
    if right:
        y = b.op("reshape", [y], shape=(y.type.shape[0], 1))
    found = product(b, x, y)
    if not (left or right):
        return found
    *batch, m, n = found.type.shape
    kept = ([] if left else [m]) + ([] if right else [n])
    return b.op("reshape", [found], shape=(*batch, *kept))


@imports("MatMul")
def matmul(ctx: NodeContext) -> Sequence[Known]:
    return [numpy_product(ctx, ctx.value(0), ctx.value(1))]


@imports("Gemm")
def gemm(ctx: NodeContext) -> Sequence[Known]:
    b, x, y = ctx.b, ctx.value(0), ctx.value(1)
    alpha, beta = float(ctx.attr("alpha", 1.0)), float(ctx.attr("beta", 1.0))
    if x.type.rank != 2 or y.type.rank != 2:
        raise ctx.unsupported(f"expected matrices, got {x.type} and {y.type}")
    dtype = x.type.dtype
    if not dtype.is_float and (alpha, beta) != (1.0, 1.0):
        raise ctx.unsupported(f"alpha {alpha} and beta {beta} on integers of type {dtype.value}")
    flags = {"transpose_a": bool(ctx.attr("transA", 0)), "transpose_b": bool(ctx.attr("transB", 0))}
    found = b.op("matmul", [x, y], **flags)
    if alpha != 1.0:
        found = b.op("mul", [found, b.scalar(alpha, found.type.dtype)])
    if ctx.has(2) and beta != 0.0:
        addend = cast(b, widen(b, ctx.value(2)), found.type.dtype)
        if beta != 1.0:
            addend = b.op("mul", [addend, b.scalar(beta, addend.type.dtype)])
        shape = found.type.shape
        found = b.op("add", [found, addend])
        if found.type.shape != shape:
            raise ctx.unsupported(f"expected a C that broadcasts to {list(shape)}, got {ctx.type(2)}")
    return [cast(b, found, dtype)]


@imports("Det")
def det(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    if x.type.rank < 2 or x.type.shape[-1] > 4:
        raise ctx.unsupported(f"determinants of matrices larger than 4x4, got {x.type}")
    return [cast(ctx.b, ctx.b.op("det", [widen(ctx.b, x)]), x.type.dtype)]
