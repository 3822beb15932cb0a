# SPDX-License-Identifier: Apache-2.0
"""What ops make of operands with sizes that depend on data. An op without a rule is refused, as it might take padding for data.

A rule is called with the node's context and its importer; it gives what that gives, with counts where results have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from memc.ir.core import Array, Value
from memc.ir.types import DType

from .context import Importer, Known, NodeContext
from .data_dependent_sizes import Count
from .shape_numbers import Fold, counts_in, import_numbers

Rule = Callable[[NodeContext, Importer], Sequence[Known]]

RULES: dict[str, Rule] = {}
"""By ONNX's names of the ops."""

ELEMENTWISE = (
    "Abs Neg Exp Log Sqrt Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Floor Ceil Round Sign Not "
    "BitwiseNot IsNaN IsInf Add Sub Mul Div Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor BitwiseAnd BitwiseOr "
    "BitwiseXor Pow Mod BitShift Where Cast CastLike Clip Max Min Sum Mean Relu Sigmoid LeakyRelu Elu Gelu HardSigmoid "
    "HardSwish Softplus Softsign Mish Selu Celu ThresholdedRelu PRelu Identity"
).split()


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(found: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, found))
        return found

    return add


def counts_of(ctx: NodeContext, known: Known | None) -> dict[int, Count]:
    """The counts of an input by axis; none for most."""
    return ctx.sizes.of.get(known, {}) if isinstance(known, Value) else {}


def has_counts(inputs: Sequence[Known | None], of: Mapping[Value, object]) -> bool:
    return any(isinstance(known, Value) and known in of for known in inputs)


OF_NUMBERS = frozenset({"TopK", "ConstantOfShape", "Expand", "Range", "Reshape"})
"""Ops with a rule that takes a number as a size."""


def import_counted(ctx: NodeContext, importer: Importer, fold: Fold) -> Sequence[Known]:
    """As the importer, for inputs of which some have counts, or are made of some. Raises UnsupportedError for an op that has
    no rule."""
    found = RULES.get(ctx.node.op_type) if ctx.node.domain in ("", "ai.onnx") else None
    if not has_counts(ctx.inputs, ctx.sizes.of):
        moved = ctx.node.op_type == "Reshape" and has_counts(ctx.inputs[:1], ctx.sizes.numbers)
        by_rule = ctx.node.op_type in OF_NUMBERS and not moved
        return found(ctx, importer) if found is not None and by_rule else import_numbers(ctx, importer, fold)
    if found is None:
        raise refused(ctx, "this op")
    return found(ctx, importer)


def refused(ctx: NodeContext, what: str) -> Exception:
    """An UnsupportedError that names the input; raise it."""
    pairs = zip(ctx.node.input, ctx.inputs)
    name, axis = next((name, axis) for name, known in pairs for axis in counts_of(ctx, known))
    return ctx.unsupported(
        f"input `{name}` has a size that depends on data along axis {axis}, which {what} does not take"
    )


def marked(ctx: NodeContext, results: Sequence[Known], counts: Mapping[int, Count]) -> Sequence[Known]:
    """The results, all of which have these counts. Raises UnsupportedError where their extents do not fit."""
    for result in results:
        for axis, count in counts.items():
            if not isinstance(result, Value) or result.type.shape[axis] != count.most:
                raise refused(ctx, "together with these inputs this op")
            ctx.sizes.of.setdefault(result, {})[axis] = count
    return results


@rule(*ELEMENTWISE)
def elementwise(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Operands that have the same count along an axis, or one element: it is the result's count, too."""
    types = [ctx.type(n) for n, known in enumerate(ctx.inputs) if known is not None]
    rank = max(type.rank for type in types)
    counts: dict[int, Count] = {}
    for known in ctx.inputs:
        for axis, count in counts_of(ctx, known).items():
            assert isinstance(known, Value)
            place = axis + rank - known.type.rank
            if counts.setdefault(place, count) != count:
                raise refused(ctx, "with another one beside it this op")
    for n, known in enumerate(ctx.inputs):
        if known is None:
            continue
        shape, own = ctx.type(n).shape, counts_of(ctx, known)
        for place in counts:
            axis = place - (rank - len(shape))
            if axis >= 0 and axis not in own and shape[axis] != 1:
                raise refused(ctx, f"beside a size of {shape[axis]} this op")
    return marked(ctx, importer(ctx), counts)


@rule("Transpose")
def transpose(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    rank, own = ctx.type(0).rank, counts_of(ctx, ctx.inputs[0])
    order = [axis % rank for axis in ctx.attr("perm", tuple(reversed(range(rank))))]
    return marked(ctx, importer(ctx), {order.index(axis): count for axis, count in own.items()})


@rule("Unsqueeze", "Squeeze", "Flatten", "Reshape")
def reshape(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """The axis stays one of its extent, with as many elements before and behind it. A `Reshape` to its full extent is meant
    for another size, and refused."""
    if has_counts(ctx.inputs[1:], ctx.sizes.of):
        raise refused(ctx, "as a shape this op")
    own = counts_of(ctx, ctx.inputs[0])
    same: dict[int, Count] = {}
    if ctx.node.op_type == "Reshape" and ctx.has(1) and ctx.known(1) is None:
        found_shape = counts_in(ctx, ctx.inputs[1])
        if found_shape is None:
            return importer(ctx)
        ctx.inputs[1], same = found_shape
        if any(count not in own.values() for count in same.values()):
            raise ctx.unsupported("a shape with a size that depends on data, which the input does not have")
    (result,) = importer(ctx)
    if not own:
        return [result]
    assert isinstance(result, Value)
    old, new = ctx.type(0).shape, result.type.shape
    wanted = ctx.ints(1) if ctx.node.op_type == "Reshape" and ctx.has(1) else ctx.attr("shape", ())
    found: dict[int, Count] = {}
    for axis, count in own.items():
        places = [
            place
            for place, extent in enumerate(new)
            if extent == old[axis]
            and math.prod(new[:place]) == math.prod(old[:axis])
            and math.prod(new[place + 1 :]) == math.prod(old[axis + 1 :])
            and (ctx.node.op_type != "Reshape" or wanted[place] in (-1, 0) or same.get(place) == count)
            and (ctx.node.op_type != "Unsqueeze" or place == _place_after(ctx, axis, len(new)))
            and place not in found
        ]
        if not places or 0 in old:
            raise refused(ctx, "to this shape this op")
        found[places[0]] = count
    return marked(ctx, [result], found)


def _place_after(ctx: NodeContext, axis: int, rank: int) -> int:
    """Where an axis is after an `Unsqueeze` to `rank` axes."""
    added = {place % rank for place in (ctx.ints(1) if ctx.has(1) else ctx.attr("axes", ()))}
    return [place for place in range(rank) if place not in added][axis]


@rule("Gather")
def gather(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Indices below 0 count from the end of the data, which the importer does not know."""
    data, indices = ctx.type(0), ctx.type(1)
    axis = int(ctx.attr("axis", 0)) % max(data.rank, 1)
    own, chosen = counts_of(ctx, ctx.inputs[0]), counts_of(ctx, ctx.inputs[1])
    if axis in own:
        at = ctx.known(1)
        if at is not None:
            if at.size and at.min() < 0:
                raise refused(ctx, "with an index below 0 this op")
        else:
            given = ctx.b.op("cast", [ctx.value(1)], to=DType.I64)
            low = ctx.b.op("less", [given, ctx.b.scalar(0, DType.I64)])
            ctx.inputs[1] = ctx.b.op("select", [low, ctx.b.op("add", [given, own[axis].value]), given])
    counts = {a if a < axis else a + indices.rank - 1: count for a, count in own.items() if a != axis}
    counts.update({axis + a: count for a, count in chosen.items()})
    return marked(ctx, importer(ctx), counts)


@rule("GatherND")
def gather_nd(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    indices, chosen = ctx.type(1), counts_of(ctx, ctx.inputs[1])
    if counts_of(ctx, ctx.inputs[0]) or int(ctx.attr("batch_dims", 0)) or indices.rank - 1 in chosen:
        raise refused(ctx, "here this op")
    return marked(ctx, importer(ctx), chosen)


def padding(ctx: NodeContext, x: Value, counts: Mapping[int, Count], fill: Array) -> Value:
    """`x` with `fill`, of one element, in place of the padding."""
    filled = x
    for axis, count in counts.items():
        shape = tuple(extent if a == axis else 1 for a, extent in enumerate(x.type.shape))
        at = ctx.b.op("iota", [], shape=shape, axis=axis, dtype=DType.I64)
        real = ctx.b.op("less", [at, count.value])
        filled = ctx.b.op("select", [real, filled, ctx.b.constant(fill)])
    return filled


def least(dtype: DType) -> Array:
    """What every number of a type is at least."""
    if dtype.is_float:
        return np.asarray(-np.inf, dtype.numpy)
    return np.asarray(False if dtype is DType.BOOL else np.iinfo(dtype.numpy).min, dtype.numpy)


def greatest(dtype: DType) -> Array:
    if dtype.is_float:
        return np.asarray(np.inf, dtype.numpy)
    return np.asarray(True if dtype is DType.BOOL else np.iinfo(dtype.numpy).max, dtype.numpy)


def last(dtype: DType, largest: bool) -> Array:
    """What comes behind everything, where the first of equal elements comes first: nan is the greatest."""
    if largest:
        return least(dtype)
    return np.asarray(np.nan, dtype.numpy) if dtype.is_float else greatest(dtype)


def zero(dtype: DType) -> Array:
    return np.asarray(0, dtype.numpy)


NEUTRAL: Mapping[str, Callable[[DType], Array]] = {
    "ReduceMax": least,
    "ReduceMin": greatest,
    "ReduceProd": lambda dtype: np.asarray(1, dtype.numpy),
    **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"), zero),
}
"""What a reduction does not see."""


def reduced_axes(ctx: NodeContext) -> tuple[list[int], dict[int, Count]]:
    """The axes that a reduction reduces, and the counts of its result."""
    own, type = counts_of(ctx, ctx.inputs[0]), ctx.type(0)
    given = ctx.ints(1) if ctx.has(1) else ctx.attr("axes", ())
    axes = [axis % type.rank for axis in given]
    if not axes and not ctx.attr("noop_with_empty_axes", 0):
        axes = list(range(type.rank))
    kept = [axis for axis in range(type.rank) if ctx.attr("keepdims", 1) or axis not in axes]
    return axes, {kept.index(a): count for a, count in own.items() if a not in axes}


@rule(*NEUTRAL)
def reduce(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    axes, left = reduced_axes(ctx)
    over = {axis: count for axis, count in counts_of(ctx, ctx.inputs[0]).items() if axis in axes}
    ctx.inputs[0] = padding(ctx, ctx.value(0), over, NEUTRAL[ctx.node.op_type](ctx.type(0).dtype))
    return marked(ctx, importer(ctx), left)


def is_open(value: int) -> bool:
    """Whether an end of a slice is meant for whatever size there is."""
    return value >= 2**31 - 1


@rule("Slice")
def slice_(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """From a place on, up to another one, counted from the beginning."""
    type, own = ctx.type(0), dict(counts_of(ctx, ctx.inputs[0]))
    if ctx.opset < 10:
        starts, stops, axes, steps = ctx.attr("starts"), ctx.attr("ends"), ctx.attr("axes"), None
    else:
        starts, stops = ctx.ints(1), ctx.ints(2)
        axes, steps = (ctx.ints(n) if ctx.has(n) else None for n in (3, 4))
    for n, axis in enumerate(axes if axes is not None else range(len(starts))):
        count = own.get(axis % type.rank)
        if count is None:
            continue
        if starts[n] < 0 or stops[n] < 0 or (steps is not None and steps[n] != 1):
            raise refused(ctx, "counted from the end or with a step this op")
        own[axis % type.rank] = _part(ctx, count, starts[n], stops[n])
    return marked(ctx, importer(ctx), own)


def _part(ctx: NodeContext, count: Count, start: int, stop: int) -> Count:
    """The count of the elements from `start` up to `stop`."""
    number, most = count.value, count.most
    if not is_open(stop):
        number = ctx.b.op("min", [number, ctx.b.scalar(stop, DType.I64)]) if stop < most else number
        most = min(most, stop)
    if start:
        left = ctx.b.op("sub", [number, ctx.b.scalar(start, DType.I64)])
        number, most = ctx.b.op("max", [left, ctx.b.scalar(0, DType.I64)]), max(most - start, 0)
    return Count(number, most)


@rule("Split")
def split(ctx: NodeContext, importer: Importer) -> Sequence[Known]:
    """Along another axis, which leaves this one as it is."""
    own = counts_of(ctx, ctx.inputs[0])
    if int(ctx.attr("axis", 0)) % max(ctx.type(0).rank, 1) in own or has_counts(ctx.inputs[1:], ctx.sizes.of):
        raise refused(ctx, "along this axis this op")
    return marked(ctx, importer(ctx), own)
