# SPDX-License-Identifier: Apache-2.0
"""Tensors of numbers that are known: constants, ranges, and tensors like others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memc.ir.core import Value
from memc.ir.types import DType

from ..context import NodeContext, converts

_FIXED = {"zeros": 0, "ones": 1, "empty": 0, "empty_strided": 0, "empty_permuted": 0}
"""What tensors without a value of their own are filled with; those that are not filled with 0."""


def filled(ctx: NodeContext, shape: Sequence[int], value: Any, dtype: DType) -> Value:
    """A tensor of one number, or of one element of another tensor."""
    scalar = ctx.typed(value, dtype)
    if not shape:
        return scalar if scalar.type.rank == 0 else ctx.b.op("reshape", [scalar], shape=())
    return ctx.b.op("broadcast", [scalar], shape=tuple(shape))


def _wanted(ctx: NodeContext, default: DType) -> DType:
    found = ctx.get("dtype")
    if isinstance(found, str):
        raise ctx.unsupported(f"elements of type {found}")
    return found if isinstance(found, DType) else ctx.out_dtype(default)


@converts("aten.zeros.default", "aten.ones.default", "aten.empty.memory_format", "aten.empty_strided.default")
def fixed(ctx: NodeContext) -> Value:
    value = _FIXED[ctx.node.target.split(".")[1]]
    return filled(ctx, ctx.ints("size"), value, _wanted(ctx, DType.F32))


@converts("aten.empty_permuted.default")
def empty_permuted(ctx: NodeContext) -> Value:
    return filled(ctx, ctx.ints("size"), 0, _wanted(ctx, DType.F32))


@converts(
    "aten.new_zeros.default",
    "aten.new_ones.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
    "aten.new_full.default",
)
def new(ctx: NodeContext) -> Value:
    value = ctx.get("fill_value", 1 if "new_ones" in ctx.node.target else 0)
    return filled(ctx, ctx.ints("size"), value, _wanted(ctx, ctx.value("self").type.dtype))


@converts("aten.zeros_like.default", "aten.ones_like.default", "aten.empty_like.default", "aten.full_like.default")
def alike(ctx: NodeContext) -> Value:
    like = ctx.value("self").type
    value = ctx.get("fill_value", 1 if "ones_like" in ctx.node.target else 0)
    return filled(ctx, like.shape, value, _wanted(ctx, like.dtype))


@converts("aten.full.default")
def full(ctx: NodeContext) -> Value:
    value = ctx.get("fill_value")
    default = DType.BOOL if isinstance(value, bool) else DType.I64 if isinstance(value, int) else DType.F32
    return filled(ctx, ctx.ints("size"), value, _wanted(ctx, default))


@converts("aten.fill.Scalar", "aten.fill.Tensor", "aten.zero.default")
def fill(ctx: NodeContext) -> Value:
    like = ctx.value("self").type
    return filled(ctx, like.shape, ctx.get("value", 0), like.dtype)


@converts("aten.scalar_tensor.default")
def scalar_tensor(ctx: NodeContext) -> Value:
    return filled(ctx, (), ctx.get("s"), _wanted(ctx, DType.F32))


@converts("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(ctx: NodeContext) -> Value:
    start, end, step = ctx.get("start", 0), ctx.get("end"), ctx.get("step", 1)
    if not all(isinstance(n, (int, float)) for n in (start, end, step)):
        raise ctx.unsupported("its size depends on data")
    default = DType.I64 if all(isinstance(n, int) for n in (start, end, step)) else DType.F32
    dtype = _wanted(ctx, default)
    count = max(int(np.ceil((end - start) / step)), 0)
    b = ctx.b
    found = b.op("iota", [], shape=(count,), axis=0, dtype=dtype)
    if step != 1:
        found = b.op("mul", [found, ctx.typed(step, dtype)])
    return found if start == 0 else b.op("add", [found, ctx.typed(start, dtype)])


@converts("aten.linspace.default")
def linspace(ctx: NodeContext) -> Value:
    dtype = _wanted(ctx, DType.F32)
    numbers = np.linspace(float(ctx.get("start")), float(ctx.get("end")), int(ctx.get("steps")))
    return ctx.b.constant(numbers.astype(dtype.numpy))


@converts("aten.eye.default", "aten.eye.m")
def eye(ctx: NodeContext) -> Value:
    n = int(ctx.get("n"))
    b, columns = ctx.b, int(ctx.get("m", n))
    row = b.op("iota", [], shape=(n, 1), axis=0, dtype=DType.I64)
    column = b.op("iota", [], shape=(1, columns), axis=1, dtype=DType.I64)
    return b.op("cast", [b.op("equal", [row, column])], to=_wanted(ctx, DType.F32))


@converts("aten.one_hot.default")
def one_hot(ctx: NodeContext) -> Value:
    b, x, classes = ctx.b, ctx.value("self"), int(ctx.get("num_classes", -1))
    if classes < 0:
        raise ctx.unsupported("its size depends on data; give num_classes")
    line = b.op("iota", [], shape=(classes,), axis=0, dtype=x.type.dtype)
    apart = b.op("reshape", [x], shape=(*x.type.shape, 1))
    return b.op("cast", [b.op("equal", [apart, line])], to=DType.I64)


@converts("aten.meshgrid.default", "aten.meshgrid.indexing")
def meshgrid(ctx: NodeContext) -> list[Value]:
    b, values = ctx.b, ctx.values("tensors")
    flip = ctx.get("indexing", "ij") == "xy" and len(values) > 1
    order = [1, 0, *range(2, len(values))] if flip else list(range(len(values)))
    shape = tuple(values[n].type.elements for n in order)
    found = []
    for n, value in enumerate(values):
        column = tuple(value.type.elements if order[axis] == n else 1 for axis in range(len(values)))
        found.append(b.op("broadcast", [b.op("reshape", [value], shape=column)], shape=shape))
    return found
