# SPDX-License-Identifier: Apache-2.0
"""Elements in other places: parts of an axis, diagonals, quarter turns, and axes that are added in front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.reduce import reduce

from ..context import NodeContext, converts
from ..handles import Handle
from .layout import flipped, joined, view_of_diagonal
from .reduction import summed
from .views import permuted, pieces, reshape_to, reshaped


@converts(
    "aten.tensor_split.sections",
    "aten.tensor_split.indices",
    *(f"aten.{name}.{form}" for name in ("hsplit", "vsplit", "dsplit") for form in ("int", "array")),
)
def tensor_split(ctx: NodeContext) -> list[Handle]:
    """Parts between indices, or as even as they can be."""
    shape, kind = ctx.value("self").type.shape, ctx.node.target.split(".")[1]
    axis = {"hsplit": min(1, len(shape) - 1), "vsplit": 0, "dsplit": 2}.get(kind)
    if axis is None:
        axis = ctx.axis(int(ctx.get("dim", 0)), len(shape))
    extent = shape[axis]
    if ctx.has("indices"):
        ends = [min(max(n + extent if n < 0 else n, 0), extent) for n in ctx.ints("indices")]
        bounds = [(start, max(start, stop)) for start, stop in zip([0, *ends], [*ends, extent])]
    else:
        count = int(ctx.get("sections"))
        ends = list(accumulate(extent // count + (n < extent % count) for n in range(count)))
        bounds = list(zip([0, *ends[:-1]], ends))
    return pieces(ctx, bounds, axis)


@converts("aten.linalg_diagonal.default")
def linalg_diagonal(ctx: NodeContext) -> Handle:
    rank = ctx.value("A").type.rank
    first, second = (ctx.axis(int(ctx.get(n, d)), rank) for n, d in (("dim1", -2), ("dim2", -1)))
    return view_of_diagonal(ctx, int(ctx.get("offset", 0)), first, second, "A")


@converts("aten.diag.default")
def diag(ctx: NodeContext) -> Any:
    """The diagonal of a matrix, or a matrix with a vector on its diagonal."""
    x, offset = ctx.value("self"), int(ctx.get("diagonal", 0))
    if x.type.rank == 1:
        return _embedded(ctx, x, offset)
    return view_of_diagonal(ctx, offset, 0, 1).read(ctx.b)


@converts("aten.trace.default")
def trace(ctx: NodeContext) -> Value:
    x = summed(ctx, view_of_diagonal(ctx, 0, 0, 1).read(ctx.b))
    return reduce(ctx.b, "sum", x, [0], False)


def _embedded(ctx: NodeContext, x: Value, offset: int) -> Value:
    """The last axis as the diagonal of two, 0 beside it."""
    b, count = ctx.b, x.type.shape[-1]
    side = count + abs(offset)
    rows, columns = np.indices((side, side))
    inside = columns - rows == offset
    at = np.where(inside, np.minimum(rows, columns), 0).astype(np.int64)
    if not count:
        return b.op("broadcast", [b.scalar(0, x.type.dtype)], shape=(*x.type.shape[:-1], side, side))
    spread = b.op("gather", [x, b.constant(at)], axis=x.type.rank - 1)
    return b.op("select", [b.constant(inside), spread, b.scalar(0, x.type.dtype)])


@converts("aten.diag_embed.default")
def diag_embed(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    rank = x.type.rank + 1
    first, second = (ctx.axis(int(ctx.get(n, d)), rank) for n, d in (("dim1", -2), ("dim2", -1)))
    made = _embedded(ctx, x, int(ctx.get("offset", 0)))
    order: list[int] = []
    rest = iter(range(rank - 2))
    for axis in range(rank):
        order.append(rank - 2 if axis == first else rank - 1 if axis == second else next(rest))
    return permuted(ctx.b, made, order)


@converts("aten.rot90.default", "aten.fliplr.default", "aten.flipud.default")
def turned(ctx: NodeContext) -> Value:
    """Quarter turns from the first axis to the second, or one axis back to front."""
    x, kind = ctx.value("self"), ctx.node.target.split(".")[1]
    if kind != "rot90":
        return flipped(ctx, x, (1 if kind == "fliplr" else 0,))
    first, second = (ctx.axis(a, x.type.rank) for a in ctx.ints("dims", [0, 1]))
    turns = int(ctx.get("k", 1)) % 4
    if turns % 2 == 0:
        return flipped(ctx, x, (first, second)) if turns else x
    order = list(range(x.type.rank))
    order[first], order[second] = second, first
    return flipped(ctx, permuted(ctx.b, x, order), (first,) if turns == 1 else (second,))


def _with_axes(shape: Sequence[int], least: int) -> tuple[int, ...]:
    """A shape of at least so many axes, as PyTorch adds them: before it, and for three after it too."""
    if len(shape) >= least:
        return tuple(shape)
    if least == 3:
        return (1, *(shape or (1,)), 1) if len(shape) < 2 else (*shape, 1)
    return (*[1] * (least - len(shape)), *shape)


@converts("aten.atleast_1d.default", "aten.atleast_2d.default", "aten.atleast_3d.default")
def at_least(ctx: NodeContext) -> Handle:
    return reshape_to(ctx, _with_axes(ctx.value("self").type.shape, int(ctx.node.target[len("aten.atleast_")])))


@converts("aten.column_stack.default", "aten.dstack.default")
def stacked(ctx: NodeContext) -> Value:
    values = ctx.values("tensors")
    if "dstack" in ctx.node.target:
        return joined(ctx, [reshaped(ctx.b, v, _with_axes(v.type.shape, 3)) for v in values], 2)
    columns = [v if v.type.rank > 1 else reshaped(ctx.b, v, (v.type.elements, 1)) for v in values]
    return joined(ctx, columns, 1)


@converts("aten.ravel.default")
def ravel(ctx: NodeContext) -> Handle:
    return reshape_to(ctx, (ctx.value("self").type.elements,))
