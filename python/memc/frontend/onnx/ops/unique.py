# SPDX-License-Identifier: Apache-2.0
"""Unique of what is known only when the model runs. It sorts, so that equal elements or slices stand side by side; the first of
each stands for all.

Nan is the greatest and equal to nan in a tensor of elements, and slices that have it differ from each other, as in onnx's
reference (`numpy.unique`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memc.frontend.onnx.context import Importer, Known, NodeContext, imports
from memc.frontend.onnx.data_dependent_axes import counts_of, last, padding, refused, rule
from memc.frontend.onnx.data_dependent_sizes import Count
from memc.ir.core import Value
from memc.ir.types import DType

from .data_dependent import counted, number, places, positions, require_run_time
from .elementwise import cast
from .reduction import resolve_axis
from .structure import cut, reshape

COLUMNS = 64
"""Slices of so many elements are sorted, once by each."""


@dataclass(frozen=True)
class Sorted:
    """Elements, or slices along an axis, in ascending order."""

    order: Value
    """i64[n]: where each was; equal ones in the order they had."""
    differs: Value
    """bool[n - 1]: whether each is another than the one before it, from the second one on."""


def _take(ctx: NodeContext, x: Value, at: Value, axis: int = 0) -> Value:
    return ctx.b.op("gather", [x, at], axis=axis)


def _ascending(ctx: NodeContext, x: Value) -> tuple[Value, Value]:
    """A vector in ascending order, and where each element was."""
    values, order = ctx.b.multi("top_k", [x], axis=0, k=x.type.elements, largest=False).results
    return values, order


def _neighbours_differ(ctx: NodeContext, values: Value, axis: int) -> Value:
    extent = values.type.shape[axis]
    pair = [cut(ctx, values, {axis: span}) for span in ((1, extent, 1), (0, extent - 1, 1))]
    return ctx.b.op("not_equal", pair)


def _of_elements(ctx: NodeContext, x: Value) -> Sorted:
    values, order = _ascending(ctx, x)
    differs = _neighbours_differ(ctx, values, 0)
    if x.type.dtype.is_float:
        earlier = cut(ctx, values, {0: (0, x.type.elements - 1, 1)})  # Nothing but nan stands behind nan.
        differs = ctx.b.op("logical_and", [differs, ctx.b.op("equal", [earlier, earlier])])
    return Sorted(order, differs)


def _of_slices(ctx: NodeContext, x: Value) -> Sorted:
    """In the order of their first elements, then of their second: sorted by the last element first, as each sort keeps the order
    of what is equal."""
    slices, columns = x.type.shape
    order = positions(ctx, slices)
    for column in reversed(range(columns)):
        key = reshape(ctx, cut(ctx, x, {1: (column, column + 1, 1)}), (slices,))
        _, moved = _ascending(ctx, _take(ctx, key, order))
        order = _take(ctx, order, moved)
    differs = _neighbours_differ(ctx, _take(ctx, x, order), 0)
    return Sorted(order, ctx.b.op("reduce_max", [differs], axes=(1,), keepdims=False))


def _as_matrix(ctx: NodeContext, x: Value, axis: int) -> Value:
    """The slices along an axis as rows."""
    shape = x.type.shape
    perm = (axis, *(a for a in range(len(shape)) if a != axis))
    turned = x if axis == 0 else ctx.b.op("transpose", [x], perm=perm)
    return reshape(ctx, turned, (shape[axis], math.prod(shape) // shape[axis]))


@imports("Unique")
def unique(ctx: NodeContext) -> Sequence[Known]:
    return _unique(ctx, None)


def _unique(ctx: NodeContext, own: Count | None) -> Sequence[Known]:
    """`own` is how many elements, or slices along the axis, are data."""
    require_run_time(ctx)
    x, axis = ctx.value(0), ctx.attr("axis")
    if axis is None or x.type.rank < 2:
        x, axis = reshape(ctx, x, (x.type.elements,)), 0
    axis = resolve_axis(ctx, int(axis), x.type.rank)
    extent = x.type.shape[axis]
    if x.type.elements == 0:
        raise ctx.unsupported(f"an input without elements, {x.type}, of which the sizes of the results are not stated")
    if x.type.elements > extent * COLUMNS:
        raise ctx.unsupported(
            f"slices of more than {COLUMNS} elements, got {x.type.elements // extent} along axis {axis}"
        )
    data = own.value if own is not None else number(ctx, extent)
    keys = x if x.type.dtype is not DType.BOOL else cast(ctx, x, DType.U8)
    if own is not None:
        keys = padding(ctx, keys, {axis: own}, last(keys.type.dtype, False))
    found = _of_elements(ctx, keys) if x.type.rank == 1 else _of_slices(ctx, _as_matrix(ctx, keys, axis))
    first = ctx.b.op("greater", [data, ctx.b.op("iota", [], shape=(1,), axis=0, dtype=DType.I64)])
    behind = ctx.b.op("add", [positions(ctx, extent - 1), number(ctx, 1)])
    others = ctx.b.op("logical_and", [found.differs, ctx.b.op("less", [behind, data])])
    starts = ctx.b.op("concat", [first, others], axis=0) if extent > 1 else first
    starts, order = (ctx.b.op("hold", [v]) for v in (starts, found.order))  # What follows must agree on them.
    at, count = places(ctx, starts)
    members = _run_lengths(ctx, at, count, data)
    group = ctx.b.op("cumsum", [cast(ctx, starts, DType.I64)], axis=0, exclusive=False, reverse=False)
    group = ctx.b.op("min", [ctx.b.op("sub", [group, number(ctx, 1)]), number(ctx, max(count.most - 1, 0))])
    group = ctx.b.op("max", [group, number(ctx, 0)])
    inverse = ctx.b.op("scatter_elements", [positions(ctx, extent), order, group], axis=0, reduction="none")
    indices = _take(ctx, order, at)
    if count.most and not int(ctx.attr("sorted", 1)):
        indices, members, inverse = _by_appearance(ctx, indices, members, inverse, count, extent)
    inverse = inverse if own is None else counted(ctx, inverse, 0, own)
    result = counted(ctx, _take(ctx, x, indices, axis), axis, count)
    return [result, counted(ctx, indices, 0, count), inverse, counted(ctx, members, 0, count)]


def _run_lengths(ctx: NodeContext, at: Value, count: Count, end: Value) -> Value:
    """How many equal ones there are from each place on."""
    room = count.most
    if room == 0:
        return at
    following = [cut(ctx, at, {0: (1, room, 1)}), ctx.b.op("iota", [], shape=(1,), axis=0, dtype=DType.I64)]
    after = ctx.b.op("concat", following, axis=0) if room > 1 else following[1]
    final = ctx.b.op("equal", [positions(ctx, room), ctx.b.op("sub", [count.value, number(ctx, 1)])])
    return ctx.b.op("sub", [ctx.b.op("select", [final, end, after]), at])


def _by_appearance(
    ctx: NodeContext, indices: Value, members: Value, inverse: Value, count: Count, extent: int
) -> tuple[Value, Value, Value]:
    """The same in the order in which the unique ones come in the input."""
    real = ctx.b.op("less", [positions(ctx, count.most), count.value])
    moved, order = _ascending(ctx, ctx.b.op("select", [real, indices, number(ctx, extent)]))
    place = ctx.b.op(
        "scatter_elements", [positions(ctx, count.most), order, positions(ctx, count.most)], axis=0, reduction="none"
    )
    moved = ctx.b.op("min", [moved, number(ctx, extent - 1)])
    return moved, _take(ctx, members, order), _take(ctx, place, inverse)


@rule("Unique")
def unique_of_counted(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Padding comes last, and is none of the groups."""
    own, rank, axis = counts_of(ctx, ctx.inputs[0]), ctx.type(0).rank, ctx.attr("axis")
    at = 0 if axis is None and rank == 1 else None if axis is None else int(axis) % rank
    if at is None or set(own) != {at}:
        raise refused(ctx, "over more than one axis this op")
    return _unique(ctx, own[at])
