# SPDX-License-Identifier: Apache-2.0
"""Reading and writing at positions that tensors give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ..context import NodeContext, converts
from ..handles import fresh
from .conversion import without_gradient
from .elementwise import number
from .views import reshaped


def positions(ctx: NodeContext, at: Value) -> Value:
    """Indices of a type that gathers take."""
    return at if at.type.dtype in (DType.I32, DType.I64) else cast(ctx.b, at, DType.I64)


def wrapped(ctx: NodeContext, at: Value, extent: int) -> Value:
    """Indices of which negative ones count from the end, all from 0 on."""
    b, at = ctx.b, positions(ctx, at)
    return b.op("select", [b.op("less", [at, number(ctx, 0, at)]), b.op("add", [at, number(ctx, extent, at)]), at])


@converts("aten.embedding.default")
def embedding(ctx: NodeContext) -> Value:
    """Rows of the weight; that of `padding_idx` gets no gradient."""
    b, at = ctx.b, positions(ctx, ctx.value("indices"))
    rows = b.op("gather", [ctx.value("weight"), at], axis=0)
    if not ctx.trainable:
        return rows
    if ctx.get("scale_grad_by_freq", False):
        raise ctx.unsupported("gradients scaled by how often an index occurs")
    padding = int(ctx.get("padding_idx", -1))
    if padding < 0:
        return rows
    ignored = reshaped(b, b.op("equal", [at, number(ctx, padding, at)]), (*at.type.shape, 1))
    return b.op("select", [ignored, without_gradient(ctx, fresh(rows)).read(b), rows])


@converts("aten.index_select.default")
def index_select(ctx: NodeContext) -> Value:
    x, at = _ranked(ctx, ctx.value("self")), positions(ctx, ctx.value("index"))
    at = reshaped(ctx.b, at, (at.type.elements,))
    found = ctx.b.op("gather", [x, at], axis=ctx.axis(int(ctx.get("dim")), x.type.rank))
    return found if ctx.value("self").type.rank else reshaped(ctx.b, found, ())


def _ranked(ctx: NodeContext, x: Value) -> Value:
    return x if x.type.rank else reshaped(ctx.b, x, (1,))


def _corner(ctx: NodeContext, x: Value, shape: Sequence[int], but: int) -> Value:
    """The part of x that indices of a shape can reach: all of axis `but`, the beginning of others."""
    stops = tuple(n if a == but else min(n, m) for a, (n, m) in enumerate(zip(x.type.shape, shape)))
    if stops == x.type.shape:
        return x
    return ctx.b.op("slice", [x], starts=(0,) * x.type.rank, stops=stops, steps=(1,) * x.type.rank)


@converts("aten.gather.default", "aten.take_along_dim.default")
def gather(ctx: NodeContext) -> Value:
    x = _ranked(ctx, ctx.value("self"))
    at = _ranked(ctx, ctx.value("index" if "index" in ctx.node.args else "indices"))
    axis = ctx.axis(int(ctx.get("dim", 0)), x.type.rank)
    if "take_along" in ctx.node.target:
        lead = [max(n, m) if a != axis else None for a, (n, m) in enumerate(zip(x.type.shape, at.type.shape))]
        at, x = (
            ctx.b.op("broadcast", [v], shape=tuple(v.type.shape[a] if n is None else n for a, n in enumerate(lead)))
            for v in (at, x)
        )
    found = ctx.b.op("gather_elements", [_corner(ctx, x, at.type.shape, axis), positions(ctx, at)], axis=axis)
    return (
        found if ctx.value("index" if "index" in ctx.node.args else "indices").type.rank else reshaped(ctx.b, found, ())
    )


_IDENTITIES = {"add": 0, "mul": 1}


def _identity(ctx: NodeContext, kind: str, x: Value) -> Value:
    """What leaves a number as it is."""
    if kind in _IDENTITIES:
        return number(ctx, _IDENTITIES[kind], x)
    if x.type.dtype.is_float:
        return number(ctx, -math.inf if kind == "max" else math.inf, x)
    if x.type.dtype is DType.BOOL:
        raise ctx.unsupported("the least or greatest of booleans")
    limits = np.iinfo(x.type.dtype.numpy)
    return number(ctx, int(limits.min if kind == "max" else limits.max), x)


def _averaged(ctx: NodeContext, total: Value, at: Value, axis: int) -> Value:
    """Sums over where they were added up, by the number of what was."""
    b, kept = ctx.b, bool(ctx.get("include_self", True))
    if not total.type.dtype.is_float:
        raise ctx.unsupported(f"means of {total.type.dtype.value}; convert to floats first")
    start = b.op("broadcast", [number(ctx, 1 if kept else 0, total)], shape=total.type.shape)
    ones = b.op("broadcast", [number(ctx, 1, total)], shape=at.type.shape)
    count = b.op("scatter_elements", [start, at, ones], axis=axis, reduction="add")
    return b.op("div", [total, b.op("max", [count, number(ctx, 1, count)])])


_REDUCTIONS = {
    "mean": "add",
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


@converts(
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter_add.default",
    "aten.scatter_reduce.two",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
)
def scatter(ctx: NodeContext) -> Value:
    b, shape = ctx.b, ctx.value("self").type.shape
    x, at = _ranked(ctx, ctx.value("self")), _ranked(ctx, positions(ctx, ctx.value("index")))
    axis = ctx.axis(int(ctx.get("dim")), x.type.rank)
    kind = ctx.get("reduce", "add" if "scatter_add" in ctx.node.target else None)
    if kind is not None and kind not in _REDUCTIONS:
        raise ctx.unsupported(f"the reduction {kind}")
    if ctx.has("src"):
        updates = _ranked(ctx, ctx.value("src"))
        stops = at.type.shape
        if updates.type.shape != stops:
            updates = b.op("slice", [updates], starts=(0,) * len(stops), stops=stops, steps=(1,) * len(stops))
    else:
        updates = b.op("broadcast", [ctx.operand("value", x.type.dtype)], shape=at.type.shape)
    updates = cast(b, updates, x.type.dtype)
    if kind is None:
        return reshaped(b, b.op("scatter_elements", [x, at, updates], axis=axis, reduction="none"), shape)
    reduction = _REDUCTIONS[kind]
    if not ctx.get("include_self", True):
        blank = b.op("broadcast", [_identity(ctx, reduction, x)], shape=at.type.shape)
        x = b.op("scatter_elements", [x, at, blank], axis=axis, reduction="none")
    found = b.op("scatter_elements", [x, at, updates], axis=axis, reduction=reduction)
    return reshaped(b, _averaged(ctx, found, at, axis) if kind == "mean" else found, shape)


@converts(
    "aten.index_add.default", "aten.index_copy.default", "aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor"
)
def index_write(ctx: NodeContext) -> Value:
    """Whole slices along an axis, written or added at the positions of `index`."""
    b, x = ctx.b, _ranked(ctx, ctx.value("self"))
    axis = ctx.axis(int(ctx.get("dim")), x.type.rank)
    at = wrapped(ctx, _ranked(ctx, ctx.value("index")), x.type.shape[axis])
    shape = tuple(at.type.elements if a == axis else n for a, n in enumerate(x.type.shape))
    if "index_fill" in ctx.node.target:
        source = b.op("broadcast", [ctx.operand("value", x.type.dtype)], shape=shape)
    else:
        source = ctx.value("source")
        if ctx.get("alpha", 1) != 1:
            source = b.op("mul", [source, ctx.typed(ctx.get("alpha"), source.type.dtype)])
        source = cast(b, reshaped(b, source, shape), x.type.dtype)
    column = reshaped(b, at, [at.type.elements if a == axis else 1 for a in range(x.type.rank)])
    at = b.op("broadcast", [column], shape=shape)
    reduction = "add" if "index_add" in ctx.node.target else "none"
    found = b.op("scatter_elements", [x, at, source], axis=axis, reduction=reduction)
    return reshaped(b, found, ctx.value("self").type.shape)


class Indices:
    """What the list of indices of `index` and `index_put` says: which axes, and where on them."""

    def __init__(self, ctx: NodeContext, x: Value) -> None:
        given: list[Any] = ctx.get("indices", [])
        found = [(axis, ctx.read(item)) for axis, item in enumerate(given) if item is not None]
        if any(at.type.dtype is DType.BOOL for _, at in found):
            raise ctx.unsupported("a mask as an index: its result's size depends on data")
        self.axes = [axis for axis, _ in found]
        self.shape = tuple(np.broadcast_shapes(*(at.type.shape for _, at in found)))
        self.at = [wrapped(ctx, at, x.type.shape[axis]) for axis, at in found]
        adjacent = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        self.first = self.axes[0] if adjacent else 0
        """The axis of the result where those of the indices begin."""
        self.rest = [axis for axis in range(x.type.rank) if axis not in self.axes]

    def tuples(self, ctx: NodeContext) -> Value:
        """Positions [indices..., axes]."""
        b, columns = ctx.b, []
        for at in self.at:
            wide = at if at.type.shape == self.shape else b.op("broadcast", [at], shape=self.shape)
            columns.append(reshaped(b, cast(b, wide, DType.I64), (*self.shape, 1)))
        return b.op("concat", columns, axis=len(self.shape)) if len(columns) > 1 else columns[0]

    def order(self) -> list[int]:
        """The axes of x, indexed ones first."""
        return [*self.axes, *self.rest]

    def to_result(self) -> list[int]:
        """Where the axes of [indices..., rest...] go in the result."""
        count = len(self.shape)
        before = [count + n for n, axis in enumerate(self.rest) if axis < self.first]
        after = [count + n for n, axis in enumerate(self.rest) if axis >= self.first]
        return [*before, *range(count), *after]


def _turned(ctx: NodeContext, x: Value, perm: Sequence[int]) -> Value:
    return x if list(perm) == list(range(len(perm))) else ctx.b.op("transpose", [x], perm=tuple(perm))


@converts("aten.index.Tensor")
def index(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    where = Indices(ctx, x)
    if len(where.axes) == 1:
        return b.op("gather", [x, where.at[0]], axis=where.axes[0])
    found = b.op("gather_nd", [_turned(ctx, x, where.order()), where.tuples(ctx)], batch_dims=0)
    return _turned(ctx, found, where.to_result())


@converts("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    given = ctx.get("indices", [])
    masks = [ctx.read(item) for item in given if item is not None]
    if len(masks) == 1 and masks[0].type.dtype is DType.BOOL and not ctx.get("accumulate", False):
        return _put_where(ctx, x, masks[0], [item is None for item in given].index(False))
    where = Indices(ctx, x)
    updates = cast(b, ctx.value("values"), x.type.dtype)
    wanted = (*where.shape, *(x.type.shape[a] for a in where.rest))
    to_result = where.to_result()
    updates = b.op("broadcast", [updates], shape=tuple(wanted[a] for a in to_result))
    updates = _turned(ctx, updates, [to_result.index(a) for a in range(len(to_result))])
    reduction = "add" if ctx.get("accumulate", False) else "none"
    order = where.order()
    turned = _turned(ctx, x, order)
    found = b.op("scatter_nd", [turned, where.tuples(ctx), updates], reduction=reduction)
    return _turned(ctx, found, [order.index(a) for a in range(x.type.rank)])


def _put_where(ctx: NodeContext, x: Value, mask: Value, first: int) -> Value:
    """One number written wherever a mask says."""
    values = ctx.value("values")
    if values.type.elements != 1:
        raise ctx.unsupported("several values written at a mask: their number depends on data")
    b = ctx.b
    trailing = x.type.rank - first - mask.type.rank
    mask = reshaped(b, mask, (*mask.type.shape, *[1] * trailing))
    return b.op("select", [mask, cast(b, reshaped(b, values, ()), x.type.dtype), x])


@converts("aten.masked_scatter.default")
def masked_scatter(ctx: NodeContext) -> Value:
    """Elements of a source, in order, at the places of a mask: the nth of them takes the nth element."""
    b, x = ctx.b, ctx.value("self")
    mask = b.op("broadcast", [ctx.value("mask")], shape=x.type.shape)
    count = x.type.elements
    flat = reshaped(b, mask, (count,))
    number_of = b.op("cumsum", [cast(b, flat, DType.I64)], axis=0, exclusive=True, reverse=False)
    source = reshaped(b, ctx.value("source"), (math.prod(ctx.value("source").type.shape),))
    last = b.scalar(max(source.type.elements - 1, 0), DType.I64)
    found = b.op("gather", [source, b.op("min", [number_of, last])], axis=0)
    return reshaped(b, b.op("select", [flat, found, reshaped(b, x, (count,))]), x.type.shape)
