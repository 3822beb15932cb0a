# SPDX-License-Identifier: Apache-2.0
"""Softmax, LogSoftmax, Hardmax: before opset 13 over the flattened trailing axes, then over one axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from .reduction import resolve_axis


def along_axis(ctx: NodeContext, x: Value, axis: int, opset: int, apply: Callable[[Value, int], Value]) -> Value:
    """`apply` to `x` along an axis; for opsets before 13 on the matrix that flattening at the axis gives."""
    shape, rank = x.type.shape, x.type.rank
    axis = resolve_axis(ctx, axis, rank)
    if opset >= 13 or axis == rank - 1:
        return apply(x, axis)
    flat = ctx.b.op("reshape", [x], shape=(math.prod(shape[:axis]), math.prod(shape[axis:])))
    return ctx.b.op("reshape", [apply(flat, 1)], shape=shape)


def _of_node(ctx: NodeContext, apply: Callable[[Value, int], Value]) -> Sequence[Known]:
    """`apply` to input 0 along the node's axis."""
    axis = ctx.attr("axis", -1 if ctx.opset >= 13 else 1)
    return [along_axis(ctx, ctx.value(0), axis, ctx.opset, apply)]


@imports("Softmax")
def softmax(ctx: NodeContext) -> Sequence[Known]:
    return _of_node(ctx, lambda x, axis: ctx.b.op("softmax", [x], axis=axis))


@imports("LogSoftmax")
def log_softmax(ctx: NodeContext) -> Sequence[Known]:
    return _of_node(ctx, lambda x, axis: ctx.b.op("log_softmax", [x], axis=axis))


@imports("Hardmax")
def hardmax(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b

    def apply(x: Value, axis: int) -> Value:
        kept = tuple(1 if d == axis else n for d, n in enumerate(x.type.shape))
        line = tuple(n if d == axis else 1 for d, n in enumerate(x.type.shape))
        first = b.op("reshape", [b.op("arg_max", [x], axis=axis, last=False)], shape=kept)
        position = b.op("iota", [], shape=line, axis=axis, dtype=DType.I64)
        return cast(b, b.op("equal", [position, first]), x.type.dtype)

    return _of_node(ctx, apply)
