# SPDX-License-Identifier: Apache-2.0
"""Gathering, scattering, and tensors made from positions: Range, EyeLike, OneHot, Trilu, ReverseSequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.types import DType

from ..context import Known, NodeContext, imports
from .elementwise import cast, onnx_dtype
from .structure import axis_of, cut, invalid, reshape


def indices(ctx: NodeContext, index: int) -> Value:
    """An index input as i32 or i64."""
    value = ctx.value(index)
    return value if value.type.dtype in (DType.I32, DType.I64) else cast(ctx, value, DType.I64)


@imports("Gather")
def gather(ctx: NodeContext) -> Sequence[Known]:
    data = ctx.value(0)
    axis = axis_of(ctx, int(ctx.attr("axis", 0)), data.type.rank)
    known = ctx.known(1)
    if known is not None and known.ndim == 0:
        # One known position: a slice, which may need no copy.
        at, extent = int(known), data.type.shape[axis]
        if not -extent <= at < extent:
            raise invalid(ctx, f"index {at} is out of range [{-extent}, {extent})")
        one = cut(ctx, data, {axis: (at % extent, at % extent + 1, 1)})
        return [reshape(ctx, one, data.type.shape[:axis] + data.type.shape[axis + 1 :])]
    return [ctx.b.op("gather", [data, indices(ctx, 1)], axis=axis)]


@imports("GatherElements")
def gather_elements(ctx: NodeContext) -> Sequence[Known]:
    data = ctx.value(0)
    axis = axis_of(ctx, int(ctx.attr("axis", 0)), data.type.rank)
    return [ctx.b.op("gather_elements", [data, indices(ctx, 1)], axis=axis)]


@imports("GatherND")
def gather_nd(ctx: NodeContext) -> Sequence[Known]:
    return [ctx.b.op("gather_nd", [ctx.value(0), indices(ctx, 1)], batch_dims=int(ctx.attr("batch_dims", 0)))]


@imports("ScatterElements")
def scatter_elements(ctx: NodeContext) -> Sequence[Known]:
    data = ctx.value(0)
    axis = axis_of(ctx, int(ctx.attr("axis", 0)), data.type.rank)
    operands = [data, indices(ctx, 1), ctx.value(2)]
    return [ctx.b.op("scatter_elements", operands, axis=axis, reduction=str(ctx.attr("reduction", "none")))]


imports("Scatter")(scatter_elements)


@imports("ScatterND")
def scatter_nd(ctx: NodeContext) -> Sequence[Known]:
    operands = [ctx.value(0), indices(ctx, 1), ctx.value(2)]
    return [ctx.b.op("scatter_nd", operands, reduction=str(ctx.attr("reduction", "none")))]


@imports("Range")
def range_node(ctx: NodeContext) -> Sequence[Known]:
    start, limit, delta = (np.asarray(ctx.const(i)).reshape(()) for i in range(3))
    if delta == 0:
        raise invalid(ctx, "expected a delta other than 0")
    dtype = ctx.type(0).dtype
    if dtype.is_float:
        length = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    else:
        length = len(range(int(start), int(limit), int(delta)))
    line = ctx.b.op("iota", [], shape=(length,), axis=0, dtype=dtype)
    return [ctx.b.op("add", [ctx.b.op("mul", [line, ctx.b.constant(delta)]), ctx.b.constant(start)])]


def _rows_and_columns(ctx: NodeContext, rows: int, columns: int) -> tuple[Value, Value]:
    """Row numbers [rows, 1] and column numbers [1, columns]."""
    return (
        ctx.b.op("iota", [], shape=(rows, 1), axis=0, dtype=DType.I64),
        ctx.b.op("iota", [], shape=(1, columns), axis=1, dtype=DType.I64),
    )


@imports("EyeLike")
def eye_like(ctx: NodeContext) -> Sequence[Known]:
    like = ctx.type(0)
    if like.rank != 2:
        raise invalid(ctx, f"expected an input of rank 2, got {like}")
    code = ctx.attr("dtype")
    row, column = _rows_and_columns(ctx, *like.shape)
    diagonal = ctx.b.op("add", [row, ctx.b.scalar(int(ctx.attr("k", 0)), DType.I64)])
    hit = ctx.b.op("equal", [diagonal, column])
    return [cast(ctx, hit, like.dtype if code is None else onnx_dtype(ctx, code))]


@imports("Trilu")
def trilu(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    if x.type.rank < 2:
        raise invalid(ctx, f"expected an input of rank 2 or more, got {x.type}")
    row, column = _rows_and_columns(ctx, *x.type.shape[-2:])
    k = cast(ctx, reshape(ctx, ctx.value(1), ()), DType.I64) if ctx.has(1) else ctx.b.scalar(0, DType.I64)
    test = "greater_equal" if ctx.attr("upper", 1) else "less_equal"
    kept = ctx.b.op(test, [column, ctx.b.op("add", [row, k])])
    return [ctx.b.op("select", [kept, x, ctx.b.scalar(0, x.type.dtype)])]


@imports("OneHot")
def one_hot(ctx: NodeContext) -> Sequence[Known]:
    positions = cast(ctx, ctx.value(0), DType.I64)
    depth = int(np.asarray(ctx.const(1)).reshape(-1)[0])
    values = ctx.value(2)
    axis = axis_of(ctx, int(ctx.attr("axis", -1)), positions.type.rank + 1)
    shape = positions.type.shape
    positions = reshape(ctx, positions, (*shape[:axis], 1, *shape[axis:]))
    line = (1,) * axis + (depth,) + (1,) * (len(shape) - axis)
    zero, extent = ctx.b.scalar(0, DType.I64), ctx.b.scalar(depth, DType.I64)
    negative = ctx.b.op("less", [positions, zero])
    wrapped = ctx.b.op("select", [negative, ctx.b.op("add", [positions, extent]), positions])
    hit = ctx.b.op("equal", [wrapped, ctx.b.op("iota", [], shape=line, axis=axis, dtype=DType.I64)])
    off, on = (reshape(ctx, cut(ctx, values, {0: (i, i + 1, 1)}), ()) for i in (0, 1))
    return [ctx.b.op("select", [hit, on, off])]


def _on_axis(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of a line along one axis: extent 1 on all others."""
    return tuple(extent if i == axis else 1 for i, extent in enumerate(shape))


@imports("ReverseSequence")
def reverse_sequence(ctx: NodeContext) -> Sequence[Known]:
    """Along the time axis, the first len[b] elements of sequence b in reverse order, the rest as it is."""
    x, b = ctx.value(0), ctx.b
    batch = axis_of(ctx, int(ctx.attr("batch_axis", 1)), x.type.rank)
    time = axis_of(ctx, int(ctx.attr("time_axis", 0)), x.type.rank)
    lengths = reshape(ctx, indices(ctx, 1), _on_axis(x.type.shape, batch))
    dtype = lengths.type.dtype
    step = b.op("iota", [], shape=_on_axis(x.type.shape, time), axis=time, dtype=dtype)
    last = b.op("sub", [lengths, b.scalar(1, dtype)])
    source = b.op("select", [b.op("less", [step, lengths]), b.op("sub", [last, step]), step])
    return [_take_along(ctx, x, source, time, x.type.shape)]


def _take_along(ctx: NodeContext, x: Value, source: Value, axis: int, shape: tuple[int, ...]) -> Value:
    """gather_elements with indices broadcast to `shape`."""
    if source.type.shape != shape:
        source = ctx.b.op("broadcast", [source], shape=shape)
    return ctx.b.op("gather_elements", [x, source], axis=axis)


@imports("TensorScatter")
def tensor_scatter(ctx: NodeContext) -> Sequence[Known]:
    """A cache with `update` written at each batch entry's own position of the sequence axis."""
    cache, update, b = ctx.value(0), ctx.value(1), ctx.b
    axis = axis_of(ctx, int(ctx.attr("axis", -2)), cache.type.rank)
    shape, length, written = cache.type.shape, cache.type.shape[axis], update.type.shape[axis]
    if axis == 0 or update.type.rank != cache.type.rank or written > length:
        raise invalid(ctx, f"expected an update that fits into {cache.type} along axis {axis} > 0, got {update.type}")
    if update.type.elements == 0:
        return [cache]
    place = b.op("iota", [], shape=_on_axis(shape, axis), axis=axis, dtype=DType.I64)
    if ctx.has(2):
        start = reshape(ctx, cast(ctx, ctx.value(2), DType.I64), (shape[0],) + (1,) * (len(shape) - 1))
        place = b.op("sub", [place, start])
    zero = b.scalar(0, DType.I64)
    if ctx.attr("mode", "linear") == "circular":
        place = b.op("mod", [place, b.scalar(length, DType.I64)])
    end = b.scalar(written, DType.I64)
    hit = b.op("logical_and", [b.op("greater_equal", [place, zero]), b.op("less", [place, end])])
    source = b.op("select", [hit, place, zero])
    return [b.op("select", [hit, _take_along(ctx, update, source, axis, shape), cache])]
