# SPDX-License-Identifier: Apache-2.0
"""QGemm, MatMulIntegerToFloat and DynamicQuantizeMatMul: products in i32, scaled in f32."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.reduce import reduce
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..quantized_nn import spread_over
from .domain import FLOAT, INT, microsoft, require_rank, require_shape
from .linear import SMALL, centred, number, ratio, require_small, saturated


def columns(ctx: NodeContext, index: int, shape: tuple[int, ...], transposed: bool = False) -> Value:
    """Scale or zero point `index` of a matrix of `shape`: one number, or one for each column (row if `transposed`)."""
    given, count = ctx.type(index), shape[-2] if transposed else shape[-1]
    each = given.shape in ((count,), (*shape[:-2], 1, count))
    if given.elements != 1 and not each:
        raise ctx.unsupported(f"expected one element or {count}, one for each column, as input {index}, got {given}")
    return spread_over(ctx, ctx.value(index), (count, 1) if transposed else (count,))


def less_zero(ctx: NodeContext, data: int, zero: int, transposed: bool = False) -> Value:
    """Input `data` as i32 minus its zero point, one or one for each column."""
    known = ctx.known(zero)
    x = cast(ctx.b, ctx.value(data), DType.I32)
    if not ctx.has(zero) or (known is not None and not known.any()):
        return x
    if ctx.type(zero).dtype is not ctx.type(data).dtype:
        raise ctx.unsupported(f"expected a zero point of type {ctx.type(data).dtype.value}, got {ctx.type(zero)}")
    return ctx.b.op("sub", [x, cast(ctx.b, columns(ctx, zero, ctx.type(data).shape, transposed), DType.I32)])


def require_matrices(ctx: NodeContext, *indices: int) -> None:
    """Raise UnsupportedError unless these inputs are u8 or i8 of rank 2 or more."""
    for index in indices:
        given = ctx.type(index)
        if given.dtype not in SMALL or given.rank < 2:
            raise ctx.unsupported(f"expected u8 or i8 of rank 2 or more as input {index}, got {given}")


@microsoft("QGemm", inputs=(6, 9), alpha=FLOAT, transA=INT, transB=INT)
def qgemm(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: A, its scale and zero point, likewise B, C as i32, scale and zero point of the result: without them, f32."""
    b = ctx.b
    for index in (0, 3):
        require_matrices(ctx, index)
        require_rank(ctx, index, 2, f"input {index}")
    if ctx.has(7) != ctx.has(8):
        raise ctx.unsupported("expected y_scale and y_zero_point, or neither")
    flags = {"transpose_a": bool(ctx.attr("transA", 0)), "transpose_b": bool(ctx.attr("transB", 0))}
    of_b = ctx.type(3).shape
    total = b.op("matmul", [centred(ctx, 0, 2), less_zero(ctx, 3, 5, flags["transpose_b"])], **flags)
    if ctx.has(6):
        if ctx.type(6).dtype is not DType.I32:
            raise ctx.unsupported(f"expected a C of type i32, got {ctx.type(6)}")
        summed = b.op("add", [total, ctx.value(6)])
        if summed.type != total.type:
            raise ctx.unsupported(f"expected a C that broadcasts to {total.type}, got {ctx.type(6)}")
        total = summed
    alpha = float(ctx.attr("alpha", 1.0))
    if ctx.type(4).elements == 1:
        factor = ratio(ctx, [1, 4], [7] if ctx.has(7) else [], alpha)
    else:
        each = columns(ctx, 4, of_b[::-1] if flags["transpose_b"] else of_b)
        factor = b.op("mul", [each, ratio(ctx, [1], [], alpha)])
        factor = b.op("div", [factor, number(ctx, 7)]) if ctx.has(7) else factor
    found = b.op("mul", [cast(b, total, DType.F32), factor])
    return [saturated(ctx, found, 8, require_small(ctx, 8)) if ctx.has(8) else found]


def scaled(ctx: NodeContext, total: Value, factor: Value, bias: int) -> Value:
    """The f32 that a product in i32 stands for, plus the bias, input `bias` if given."""
    b = ctx.b
    found = b.op("mul", [cast(b, total, DType.F32), factor])
    if ctx.has(bias):
        require_shape(ctx, bias, total.type.shape[-1:], "a bias")
        found = b.op("add", [found, cast(b, ctx.value(bias), DType.F32)])
    return found


@microsoft("MatMulIntegerToFloat", inputs=(4, 7))
def matmul_integer_to_float(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: A, B, their scales, their zero points, a bias."""
    b = ctx.b
    require_matrices(ctx, 0, 1)
    total = b.op("matmul", [centred(ctx, 0, 4), less_zero(ctx, 1, 5)], transpose_a=False, transpose_b=False)
    of_b = columns(ctx, 3, ctx.type(1).shape)
    factor = b.op("mul", [cast(b, number(ctx, 2), DType.F32), cast(b, of_b, DType.F32)])
    return [cast(b, scaled(ctx, total, factor, 6), ctx.type(2).dtype)]


def dynamically_quantized(ctx: NodeContext, x: Value) -> tuple[Value, Value]:
    """f32 `x` as integers less their zero point, in i32, and their scale: those of DynamicQuantizeLinear for u8."""
    b = ctx.b
    zero, one, top = (b.scalar(v, DType.F32) for v in (0.0, 1.0, 255.0))
    axes = range(x.type.rank)
    low = b.op("min", [reduce(b, "min", x, axes, False), zero])
    high = b.op("max", [reduce(b, "max", x, axes, False), zero])
    scale = b.op("div", [b.op("sub", [high, low]), top])
    scale = b.op("select", [b.op("equal", [scale, zero]), one, scale])
    point = b.op("clip", [b.op("round", [b.op("sub", [zero, b.op("div", [low, scale])])])], min=0.0, max=255.0)
    steps = b.op("add", [b.op("round", [b.op("div", [x, scale])]), point])
    return cast(b, b.op("sub", [b.op("clip", [steps], min=0.0, max=255.0), point]), DType.I32), scale


@microsoft("DynamicQuantizeMatMul", inputs=(3, 5))
def dynamic_quantize_matmul(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: A in f32, which is quantized to u8 with one scale, B, its scale and zero point, a bias."""
    b = ctx.b
    require_matrices(ctx, 1)
    if ctx.type(0).dtype is not DType.F32 or ctx.type(0).rank < 2:
        raise ctx.unsupported(f"expected f32 of rank 2 or more as input 0, got {ctx.type(0)}")
    x, scale = dynamically_quantized(ctx, ctx.value(0))
    total = b.op("matmul", [x, less_zero(ctx, 1, 3)], transpose_a=False, transpose_b=False)
    return [scaled(ctx, total, b.op("mul", [scale, columns(ctx, 2, ctx.type(1).shape)]), 4)]
