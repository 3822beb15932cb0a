# SPDX-License-Identifier: Apache-2.0
"""The rules of `data_dependent_axes` for ops that sum or search along an axis, in which padding is replaced by what does not count, and
for those that treat the elements of an axis alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from .context import Importer, Known, NodeContext
from .data_dependent_axes import (
    counts_of,
    greatest,
    has_counts,
    least,
    marked,
    padding,
    reduced_axes,
    refused,
    rule,
    zero,
)
from .data_dependent_sizes import Count


@rule("ReduceMean")
def mean(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """The sum over the product of the counts, which is nan where there is nothing."""
    b, x = ctx.b, ctx.value(0)
    axes, left = reduced_axes(ctx)
    over = {axis: count for axis, count in counts_of(ctx, x).items() if axis in axes}
    if not over:
        return marked(ctx, importer(ctx), left)
    dtype = x.type.dtype
    if dtype.is_integer and dtype.itemsize == 8:
        raise refused(ctx, "of integers of 64 bits this op")
    wide = cast(b, x, DType.I64) if dtype.is_integer else widen(b, x)
    total = b.op(
        "reduce_sum",
        [padding(ctx, wide, over, zero(wide.type.dtype))],
        axes=tuple(sorted(set(axes))),
        keepdims=bool(ctx.attr("keepdims", 1)),
    )
    rest = int(np.prod([x.type.shape[axis] for axis in set(axes) - set(over)], dtype=np.int64))
    divisor = b.scalar(rest, DType.I64)
    for count in over.values():
        divisor = b.op("mul", [divisor, count.value])
    if dtype.is_integer:  # Which have no nan, and must not be divided by 0.
        divisor = b.op("max", [divisor, b.scalar(1, DType.I64)])
    return marked(ctx, [cast(b, b.op("div", [total, cast(b, divisor, total.type.dtype)]), dtype)], left)


@rule("ReduceLogSumExp")
def log_sum_exp(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    axes, left = reduced_axes(ctx)
    over = {axis: count for axis, count in counts_of(ctx, ctx.inputs[0]).items() if axis in axes}
    if over and not ctx.type(0).dtype.is_float:
        raise refused(ctx, "of integers this op")
    ctx.inputs[0] = padding(ctx, ctx.value(0), over, least(ctx.type(0).dtype))
    return marked(ctx, importer(ctx), left)


@rule("ArgMax", "ArgMin")
def arg_extreme(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Padding comes after all data, so that only the last of equal elements needs a bound."""
    x = ctx.value(0)
    axis, own = int(ctx.attr("axis", 0)) % max(x.type.rank, 1), counts_of(ctx, x)
    keeps = bool(ctx.attr("keepdims", 1))
    left = {a if keeps or a < axis else a - 1: count for a, count in own.items() if a != axis}
    if axis not in own:
        return marked(ctx, importer(ctx), left)
    fill = least if ctx.node.op_type == "ArgMax" else greatest
    ctx.inputs[0] = padding(ctx, x, {axis: own[axis]}, fill(x.type.dtype))
    (found,) = importer(ctx)
    assert isinstance(found, Value)
    final = ctx.b.op("sub", [own[axis].value, ctx.b.scalar(1, DType.I64)])
    return marked(ctx, [ctx.b.op("min", [found, final])], left)


@rule("Softmax", "LogSoftmax")
def softmax(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Padding has no share of the sum."""
    own = counts_of(ctx, ctx.inputs[0])
    if ctx.opset < 13:
        raise refused(ctx, f"opset {ctx.opset} of this op")
    axis = int(ctx.attr("axis", -1)) % max(ctx.type(0).rank, 1)
    if axis in own:
        ctx.inputs[0] = padding(ctx, ctx.value(0), {axis: own[axis]}, least(ctx.type(0).dtype))
    return marked(ctx, importer(ctx), own)


@rule("CumSum", "CumProd")
def running(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    x, own = ctx.value(0), counts_of(ctx, ctx.inputs[0])
    if has_counts(ctx.inputs[1:], ctx.sizes.of):
        raise refused(ctx, "as an axis this op")
    neutral = zero(x.type.dtype) if ctx.node.op_type == "CumSum" else np.asarray(1, x.type.dtype.numpy)
    axis = ctx.ints(1)[0] % max(x.type.rank, 1)
    ctx.inputs[0] = padding(ctx, x, {a: count for a, count in own.items() if a == axis}, neutral)
    return marked(ctx, importer(ctx), own)


@rule("MatMul", "Gemm")
def product(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Rows, columns and batches stay what they are; along what is summed both operands have the same count, and zeros behind
    it."""
    left, right = (dict(counts_of(ctx, ctx.inputs[n])) for n in range(2))
    a, b = ctx.type(0).rank, ctx.type(1).rank
    if a < 2 or b < 2:
        raise refused(ctx, "with a vector this op")
    of_gemm = ctx.node.op_type == "Gemm"
    rows, inner = (a - 1, a - 2) if of_gemm and ctx.attr("transA", 0) else (a - 2, a - 1)
    depth, columns = (b - 1, b - 2) if of_gemm and ctx.attr("transB", 0) else (b - 2, b - 1)
    if left.get(inner) != right.get(depth):
        raise refused(ctx, "with another extent beside it this op")
    if inner in left:
        for n, axis in enumerate((inner, depth)):
            x = ctx.value(n)
            ctx.inputs[n] = padding(ctx, x, {axis: left[inner]}, zero(x.type.dtype))
    rank = max(a, b)
    counts = _batches(ctx, left, right, rank)
    ends = ((rank - 2, left.get(rows)), (rank - 1, right.get(columns)))
    counts.update({place: count for place, count in ends if count is not None})
    if of_gemm and ctx.has(2):
        _require_addend(ctx, counts)
    return marked(ctx, importer(ctx), counts)


def _batches(ctx: NodeContext, left: dict[int, Count], right: dict[int, Count], rank: int) -> dict[int, Count]:
    """The counts of the axes before a product's rows. Raises UnsupportedError where operands differ there."""
    counts: dict[int, Count] = {}
    shapes = [ctx.type(n).shape for n in range(2)]
    for n, own in enumerate((left, right)):
        for axis, count in own.items():
            place = axis + rank - len(shapes[n])
            if place >= rank - 2:
                continue
            other, found = place - (rank - len(shapes[1 - n])), (right, left)[n]
            if found.get(other) != count and other >= 0 and shapes[1 - n][other] != 1:
                raise refused(ctx, "with another extent beside it this op")
            counts[place] = count
    return counts


def _require_addend(ctx: NodeContext, counts: dict[int, Count]) -> None:
    """Raise UnsupportedError for a `C` that has a count which the product has not, or an extent in its place."""
    shape, own = ctx.type(2).shape, counts_of(ctx, ctx.inputs[2])
    for axis, extent in enumerate(shape):
        wanted = counts.get(axis + 2 - len(shape))
        if own.get(axis) != wanted and (axis in own or extent != 1):
            raise refused(ctx, "with another extent beside it this op")


@rule(
    *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"),
    *("BatchNormalization", "InstanceNormalization", "LRN", "DepthToSpace", "SpaceToDepth"),
)
def of_batches(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """The first axis counts samples, each of which is computed by itself."""
    own = counts_of(ctx, ctx.inputs[0])
    if set(own) != {0} or has_counts(ctx.inputs[1:], ctx.sizes.of) or ctx.attr("training_mode", 0):
        raise refused(ctx, "as anything but a number of samples this op")
    return marked(ctx, importer(ctx), own)


@rule("LayerNormalization", "RMSNormalization")
def of_rows(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    own, rank = counts_of(ctx, ctx.inputs[0]), ctx.type(0).rank
    first = int(ctx.attr("axis", -1)) % max(rank, 1)
    if any(axis >= first for axis in own) or has_counts(ctx.inputs[1:], ctx.sizes.of):
        raise refused(ctx, "along an axis that it normalizes this op")
    return marked(ctx, importer(ctx), own)


@rule("RoiAlign")
def of_regions(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """As many regions as there are; padding is taken from the first image."""
    regions, images = (counts_of(ctx, ctx.inputs[n]) for n in (1, 2))
    if counts_of(ctx, ctx.inputs[0]) or set(regions) != {0} or images != regions:
        raise refused(ctx, "as anything but a number of regions this op")
    for n in (1, 2):
        x = ctx.value(n)
        ctx.inputs[n] = padding(ctx, x, counts_of(ctx, x), zero(x.type.dtype))
    return marked(ctx, importer(ctx), regions)
