# SPDX-License-Identifier: Apache-2.0
"""Ops whose result's shape depends on data: NonZero, NonMaxSuppression, Compress and Unique. Where that data is known at
import they are evaluated before they get here."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memc.frontend.onnx.context import Importer, Known, NodeContext, imports
from memc.frontend.onnx.data_dependent_axes import counts_of, marked, padding, refused, rule, zero
from memc.frontend.onnx.data_dependent_sizes import Count
from memc.ir.core import Value
from memc.ir.types import DType

from .elementwise import cast
from .reduction import resolve_axis
from .structure import cut, invalid, reshape


def require_run_time(ctx: NodeContext) -> None:
    """Leave what is known at import to the evaluation of known nodes, and raise UnsupportedError in training."""
    if all(x is None or isinstance(x, np.ndarray) for x in ctx.inputs):
        raise ctx.unsupported("these inputs and attributes")
    if ctx.trainable:
        raise ctx.unsupported("a size that depends on data, in a model to be trained")


def number(ctx: NodeContext, value: int) -> Value:
    return ctx.b.scalar(value, DType.I64)


def positions(ctx: NodeContext, extent: int) -> Value:
    """0, 1, ... as i64."""
    return ctx.b.op("iota", [], shape=(extent,), axis=0, dtype=DType.I64)


def places(ctx: NodeContext, hits: Value) -> tuple[Value, Count]:
    """Where a vector of bool is true, i64: the places in order, then zeros; and how many. Asked again, the same values."""
    if hits not in ctx.sizes.places:
        ctx.sizes.places[hits] = _places(ctx, hits)
    return ctx.sizes.places[hits]


def _places(ctx: NodeContext, hits: Value) -> tuple[Value, Count]:
    extent = hits.type.elements
    room = ctx.sizes.room(extent)
    running = ctx.b.op("cumsum", [cast(ctx, hits, DType.I64)], axis=0, exclusive=False, reverse=False)
    running = ctx.b.op("hold", [running])  # Counted and searched alike, whatever the hits are computed from.
    found = reshape(ctx, cut(ctx, running, {0: (extent - 1, extent, 1)}), ()) if extent else number(ctx, 0)
    wanted = positions(ctx, room)
    at = ctx.b.op("search_sorted", [running, wanted])
    kept = ctx.b.op("select", [ctx.b.op("less", [wanted, found]), at, number(ctx, 0)])
    if room < extent:
        ctx.sizes.checks[found] = room
    return kept, Count(found, room)


def counted(ctx: NodeContext, value: Value, axis: int, count: Count) -> Value:
    """`value`, of which an axis has a count."""
    ctx.sizes.of.setdefault(value, {})[axis] = count
    return value


def row_of(ctx: NodeContext, vector: Value, axis: int) -> Value:
    """A vector as one row (axis 0) or one column (axis 1) of a matrix."""
    extent = vector.type.elements
    return reshape(ctx, vector, (1, extent) if axis == 0 else (extent, 1))


@imports("NonZero")
def nonzero(ctx: NodeContext) -> Sequence[Known]:
    require_run_time(ctx)
    x = ctx.value(0)
    shape = x.type.shape or (1,)
    if x not in ctx.sizes.nonzero:
        ctx.sizes.nonzero[x] = _nonzero(ctx, x, shape)
    found, count = ctx.sizes.nonzero[x]
    return [counted(ctx, found, 1, count)]


def _nonzero(ctx: NodeContext, x: Value, shape: Sequence[int]) -> tuple[Value, Count]:
    """The indices, a row for each axis, and how many."""
    flat = reshape(ctx, x, (x.type.elements,))
    dtype = x.type.dtype
    hits = flat if dtype is DType.BOOL else ctx.b.op("not_equal", [flat, ctx.b.scalar(0, dtype)])
    at, count = places(ctx, hits)
    rows = []
    for axis, extent in enumerate(shape):
        inner = math.prod(shape[axis + 1 :])
        part = at if inner == 1 else ctx.b.op("div", [at, number(ctx, max(inner, 1))])
        part = part if axis == 0 else ctx.b.op("mod", [part, number(ctx, max(extent, 1))])
        rows.append(row_of(ctx, part, 0))
    return rows[0] if len(rows) == 1 else ctx.b.op("concat", rows, axis=0), count


@imports("Compress")
def compress(ctx: NodeContext) -> Sequence[Known]:
    """A gather of the positions that the condition selects."""
    x, axis = ctx.value(0), ctx.attr("axis")
    if axis is None:
        x, axis = reshape(ctx, x, (x.type.elements,)), 0
    axis = resolve_axis(ctx, int(axis), x.type.rank)
    extent, known = x.type.shape[axis], ctx.known(1)
    if known is not None:
        chosen = np.flatnonzero(known).astype(np.int64)
        if chosen.size and chosen[-1] >= extent:
            raise ctx.unsupported(f"expected a condition of at most {extent} elements, got {chosen[-1] + 1}")
        return [ctx.b.op("gather", [x, ctx.b.constant(chosen)], axis=axis)]
    require_run_time(ctx)
    condition = ctx.value(1)
    if condition.type.elements > extent:
        raise ctx.unsupported(f"expected a condition of at most {extent} elements, got {condition.type}")
    if not extent:
        return [x]
    at, count = places(ctx, condition)
    return [counted(ctx, ctx.b.op("gather", [x, at], axis=axis), axis, count)]


def _scalar(ctx: NodeContext, index: int, dtype: DType, default: float) -> Value:
    """An optional input of one element."""
    return cast(ctx, reshape(ctx, ctx.value(index), ()), dtype) if ctx.has(index) else ctx.b.scalar(default, dtype)


@imports("NonMaxSuppression")
def non_max_suppression(ctx: NodeContext) -> Sequence[Known]:
    """Candidates in the order of their scores, of which each class keeps those that overlap no better one; then the chosen
    of all classes together."""
    require_run_time(ctx)
    boxes, scores = ctx.value(0), ctx.value(1)
    if scores.type.rank != 3 or boxes.type.rank != 3 or scores.type.shape[::2] != boxes.type.shape[:2]:
        raise invalid(ctx, f"expected boxes [B, N, 4] and scores [B, C, N], got {boxes.type} and {scores.type}")
    batches, classes, candidates = scores.type.shape
    limit = ctx.known(2) if ctx.has(2) else np.zeros(1, np.int64)
    room = candidates if limit is None else min(max(int(limit.reshape(())), 0), candidates)
    if ctx.sizes.limit is not None:
        room = min(room, ctx.sizes.limit + 1)  # One more, to see that there are more.
    if room * batches * classes == 0:
        return [np.zeros((0, 3), np.int64)]
    sorted_scores, order = ctx.b.multi("top_k", [scores], axis=2, k=candidates, largest=True).results
    if ctx.sizes.candidates is not None:
        real = ctx.b.op("less", [order, ctx.sizes.candidates.value])
        order = ctx.b.op("select", [real, order, number(ctx, -1)])
    if ctx.has(4):
        good = ctx.b.op("greater", [sorted_scores, _scalar(ctx, 4, DType.F32, 0)])
        order = ctx.b.op("select", [good, order, number(ctx, -1)])
    overlap = _scalar(ctx, 3, DType.F32, 0)
    center = bool(ctx.attr("center_point_box", 0))
    chosen = ctx.b.op("non_max_suppression", [boxes, order, overlap], center=center, count=room)
    hits = ctx.b.op("greater_equal", [chosen, number(ctx, 0)])
    if limit is None:
        below = ctx.b.op("less", [positions(ctx, room), _scalar(ctx, 2, DType.I64, 0)])
        hits = ctx.b.op("logical_and", [hits, below])
    at, count = places(ctx, reshape(ctx, hits, (hits.type.elements,)))
    of_class = ctx.b.op("div", [at, number(ctx, room)])
    columns = [
        ctx.b.op("div", [of_class, number(ctx, classes)]),
        ctx.b.op("mod", [of_class, number(ctx, classes)]),
        ctx.b.op("gather", [reshape(ctx, chosen, (chosen.type.elements,)), at], axis=0),
    ]
    found = ctx.b.op("concat", [row_of(ctx, column, 1) for column in columns], axis=1)
    return [counted(ctx, found, 0, count)]


@rule("NonZero")
def nonzero_of_counted(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Padding is zero."""
    x = ctx.value(0)
    ctx.inputs[0] = padding(ctx, x, counts_of(ctx, x), zero(x.type.dtype))
    return importer(ctx)


@rule("Concat")
def concat(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Along an axis with counts, what is data is moved together; all parts have the same counts along the others."""
    values = [ctx.value(n) for n in range(len(ctx.inputs))]
    axis = resolve_axis(ctx, int(ctx.attr("axis", 0)), values[0].type.rank)
    others = [{a: count for a, count in counts_of(ctx, v).items() if a != axis} for v in values]
    if any(other != others[0] for other in others):
        raise refused(ctx, "beside parts of other sizes this op")
    (whole,) = importer(ctx)
    assert isinstance(whole, Value)
    if not any(axis in counts_of(ctx, v) for v in values):
        return marked(ctx, [whole], others[0])
    ends = [(counts_of(ctx, v).get(axis), v.type.shape[axis]) for v in values]
    at, count = _together(ctx, ends)
    return marked(ctx, [ctx.b.op("gather", [whole, at], axis=axis)], {**others[0], axis: count})


def _together(ctx: NodeContext, parts: Sequence[tuple[Count | None, int]]) -> tuple[Value, Count]:
    """Where what is data stands in parts of these counts (None: all) and extents, one behind the other; and how much."""
    key = tuple((None if count is None else count.value, extent) for count, extent in parts)
    if key not in ctx.sizes.together:
        real = []
        for count, extent in parts:
            end = number(ctx, extent) if count is None else count.value
            real.append(ctx.b.op("less", [positions(ctx, extent), end]))
        ctx.sizes.together[key] = places(ctx, ctx.b.op("concat", real, axis=0) if len(real) > 1 else real[0])
    return ctx.sizes.together[key]
