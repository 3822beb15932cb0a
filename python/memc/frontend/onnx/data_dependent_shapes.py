# SPDX-License-Identifier: Apache-2.0
"""The rules of `data_dependent_axes` for ops that read shapes, or take as many elements as a number says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.types import DType

from .context import Importer, Known, NodeContext
from .data_dependent_axes import counts_of, last, marked, padding, refused, rule
from .data_dependent_sizes import Count, Numbers
from .shape_numbers import counts_in, shape_of


@rule("Shape")
def shape(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    x = ctx.value(0)
    rank = x.type.rank
    start, stop = int(ctx.attr("start", 0)), int(ctx.attr("end", rank))
    start, stop = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, stop))
    if not any(start <= axis < stop for axis in counts_of(ctx, x)):
        return [np.asarray(x.type.shape[start:stop], np.int64)]
    return [shape_of(ctx, x, start, stop)]


@rule("Size")
def size(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    x = ctx.value(0)
    counts = counts_of(ctx, x)
    rest = [extent for axis, extent in enumerate(x.type.shape) if axis not in counts]
    found = ctx.b.scalar(int(np.prod(rest, dtype=np.int64)), DType.I64)
    for count in counts.values():
        found = ctx.b.op("mul", [found, count.value])
    most = np.asarray(x.type.elements, np.int64)
    ctx.sizes.numbers[found] = Numbers(np.zeros_like(most), most, np.full((), -1))
    return [found]


@rule("ConstantOfShape", "Expand")
def of_shape(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """The shape's counts are the result's. What is expanded has one element there, or the same count."""
    place = len(ctx.inputs) - 1
    found = counts_in(ctx, ctx.inputs[place])
    if found is None:
        return importer(ctx)
    ctx.inputs[place], counts = found
    if place:
        rank, own = ctx.type(0).rank, counts_of(ctx, ctx.inputs[0])
        shift = len(found[0]) - rank
        for axis, extent in enumerate(ctx.type(0).shape):
            there = counts.get(axis + shift)
            if axis in own and there is None and found[0][axis + shift : axis + shift + 1].tolist() == [1]:
                counts[axis + shift] = own[axis]
            elif own.get(axis) != there and (axis in own or extent != 1):
                raise ctx.unsupported("expanding a size that depends on data to another one")
    return marked(ctx, importer(ctx), counts)


@rule("TopK")
def top_k(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Padding comes last, and as many are data as are asked for and there are."""
    x = ctx.value(0)
    axis = int(ctx.attr("axis", -1)) % max(x.type.rank, 1)
    own = dict(counts_of(ctx, x))
    found = counts_in(ctx, ctx.inputs[1]) if ctx.opset >= 10 else (np.asarray([ctx.attr("k")]), {})
    if found is None or (not own and not found[1]):
        return importer(ctx)
    largest, ends = bool(ctx.attr("largest", 1)), [found[1][0].value] if found[1] else []
    room = min(int(found[0][0]), x.type.shape[axis])
    if not ends:
        ends.append(ctx.b.scalar(room, DType.I64))
    if axis in own:
        ends.append(own[axis].value)
        x = padding(ctx, x, {axis: own[axis]}, last(x.type.dtype, largest))
    key = (ends[0], ends[-1], room)
    if key not in ctx.sizes.least:
        ctx.sizes.least[key] = Count(ends[0] if len(ends) == 1 else ctx.b.op("min", ends), room)
    own[axis] = ctx.sizes.least[key]
    return marked(ctx, ctx.b.multi("top_k", [x], axis=axis, k=room, largest=largest).results, own)


@rule("Range")
def range_(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """From 0 up to a number, one by one."""
    start, end, step = ctx.known(0), counts_in(ctx, ctx.inputs[1]), ctx.known(2)
    if end is None or not end[1] or start is None or step is None or start.any() or step.reshape(()) != 1:
        return importer(ctx)
    ctx.inputs[1] = end[0].astype(start.dtype).reshape(())
    results = importer(ctx)
    if isinstance(results[0], Value):
        return marked(ctx, results, end[1])
    return marked(ctx, [ctx.b.constant(results[0])], end[1])


@rule("NonMaxSuppression")
def non_max_suppression(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Boxes that are padding are no candidates, as if their scores were below all thresholds."""
    boxes, scores = counts_of(ctx, ctx.inputs[0]), counts_of(ctx, ctx.inputs[1])
    count = scores.get(2)
    if count is None or set(scores) != {2} or boxes != {1: count}:
        raise refused(ctx, "without as many boxes and scores this op")
    ctx.sizes.candidates = count
    try:
        return importer(ctx)
    finally:
        ctx.sizes.candidates = None
