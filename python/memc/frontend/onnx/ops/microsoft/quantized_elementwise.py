# SPDX-License-Identifier: Apache-2.0
"""QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearConcat and QLinearWhere."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..quantize import dequantize_linear, quantize_linear
from ..softmax import along_axis
from ..structure import axis_of
from .domain import FLOAT, INT, microsoft
from .linear import centred, quantized, ratio, real, require_small, saturated

microsoft("QuantizeLinear", inputs=(2, 3), axis=INT)(quantize_linear)
microsoft("DequantizeLinear", inputs=(2, 3), axis=INT)(dequantize_linear)


@microsoft("QLinearAdd", inputs=(7, 8))
def qlinear_add(ctx: NodeContext) -> Sequence[Known]:
    b, to = ctx.b, require_small(ctx, 0, 2, 3, 5, 7)
    left, right = (
        b.op("mul", [centred(ctx, data, data + 2, DType.F32), ratio(ctx, [data + 1], [6])]) for data in (0, 3)
    )
    return [saturated(ctx, b.op("add", [left, right]), 7, to, shifted=True)]


@microsoft("QLinearMul", inputs=(7, 8))
def qlinear_mul(ctx: NodeContext) -> Sequence[Known]:
    b, to = ctx.b, require_small(ctx, 0, 2, 3, 5, 7)
    product = b.op("mul", [centred(ctx, data, data + 2) for data in (0, 3)])
    scaled = b.op("mul", [cast(b, product, DType.F32), ratio(ctx, [1, 4], [6])])
    return [saturated(ctx, scaled, 7, to, shifted=True)]


@microsoft("QLinearSigmoid", inputs=(4, 5))
def qlinear_sigmoid(ctx: NodeContext) -> Sequence[Known]:
    to = require_small(ctx, 0, 2, 4)
    return [quantized(ctx, ctx.b.op("sigmoid", [real(ctx, 0, 1, 2)]), 3, 4, to)]


@microsoft("QLinearLeakyRelu", inputs=(4, 5), alpha=FLOAT)
def qlinear_leaky_relu(ctx: NodeContext) -> Sequence[Known]:
    to = require_small(ctx, 0, 2, 4)
    found = ctx.b.op("leaky_relu", [real(ctx, 0, 1, 2)], alpha=float(ctx.attr("alpha", 0.01)))
    return [quantized(ctx, found, 3, 4, to)]


@microsoft("QLinearSoftmax", inputs=(5, 5), required=("opset",), axis=INT, opset=INT)
def qlinear_softmax(ctx: NodeContext) -> Sequence[Known]:
    """`opset` is that of the Softmax which it stands for."""
    to = require_small(ctx, 0, 2, 4)
    x = real(ctx, 0, 1, 2)
    found = along_axis(
        ctx, x, int(ctx.attr("axis", -1)), int(ctx.attr("opset")), lambda x, axis: ctx.b.op("softmax", [x], axis=axis)
    )
    return [quantized(ctx, found, 3, 4, to)]


@microsoft("QLinearConcat", inputs=(5, None), required=("axis",), axis=INT)
def qlinear_concat(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: scale and zero point of the result, then data, scale and zero point of each part."""
    count = len(ctx.node.input)
    if count % 3 != 2:
        raise ctx.unsupported(f"expected three inputs for each part after the first two, got {count} in all")
    to = require_small(ctx, 1, *(i for i in range(2, count) if i % 3 != 0))
    parts = [_as_result(ctx, data, to) for data in range(2, count, 3)]
    axis = axis_of(ctx, int(ctx.attr("axis")), parts[0].type.rank)
    return [ctx.b.op("concat", parts, axis=axis) if len(parts) > 1 else parts[0]]


def _as_result(ctx: NodeContext, data: int, to: DType) -> Value:
    """A part with the result's scale and zero point; itself where it has those already."""
    same = True
    for mine, wanted in ((data + 1, 0), (data + 2, 1)):
        a, b = ctx.known(mine), ctx.known(wanted)
        same = same and a is not None and b is not None and a.size == b.size == 1 and bool(a.item() == b.item())
    return ctx.value(data) if same else quantized(ctx, real(ctx, data, data + 1, data + 2), 0, 1, to)


@microsoft("QLinearWhere", inputs=(9, 9))
def qlinear_where(ctx: NodeContext) -> Sequence[Known]:
    to = require_small(ctx, 1, 3, 4, 6, 8)
    if ctx.type(0).dtype is not DType.BOOL:
        raise ctx.unsupported(f"expected a condition of type bool, got {ctx.type(0)}")
    chosen = ctx.b.op("select", [ctx.value(0), real(ctx, 1, 2, 3), real(ctx, 4, 5, 6)])
    return [quantized(ctx, chosen, 7, 8, to)]
