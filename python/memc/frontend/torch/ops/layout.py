# SPDX-License-Identifier: Apache-2.0
"""Overloads that put elements elsewhere: copies, joined and repeated tensors, padding, and triangles."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.types import DType

from ..context import NodeContext, converts, promoted
from ..handles import Handle, View, fresh
from .conversion import converted
from .elementwise import number
from .views import cut, is_row_major, one_way, pasted, reshaped, scattered, slice_bounds


@converts("aten.clone.default", "aten.lift_fresh_copy.default", "aten.alias_copy.default", "aten.positive.default")
def clone(ctx: NodeContext) -> Value:
    return ctx.value("self")


@converts("aten._to_copy.default")
def to_copy(ctx: NodeContext) -> Value:
    x, wanted = ctx.value("self"), ctx.get("dtype")
    if isinstance(wanted, str):
        raise ctx.unsupported(f"elements of type {wanted}")
    return converted(ctx, x, wanted if isinstance(wanted, DType) else x.type.dtype)


@converts("aten.copy.default")
def copy(ctx: NodeContext) -> Value:
    like = ctx.value("self").type
    x = converted(ctx, ctx.value("src"), like.dtype)
    return x if x.type.shape == like.shape else ctx.b.op("broadcast", [x], shape=like.shape)


def joined(ctx: NodeContext, values: Sequence[Value], axis: int) -> Value:
    """Tensors one after another, in their common type."""
    values = [v for v in values if v.type.shape != (0,)] or list(values)[:1]
    dtype = values[0].type.dtype
    for value in values:
        dtype = promoted(dtype, value.type.dtype)
    values = [converted(ctx, v, dtype) for v in values]
    return ctx.b.op("concat", values, axis=axis) if len(values) > 1 else values[0]


@converts("aten.cat.default", "aten.concat.default")
def cat(ctx: NodeContext) -> Value:
    values = ctx.values("tensors")
    rank = max(v.type.rank for v in values)
    return joined(ctx, values, ctx.axis(int(ctx.get("dim", 0)), rank))


@converts("aten.stack.default")
def stack(ctx: NodeContext) -> Value:
    values = ctx.values("tensors")
    axis = ctx.axis(int(ctx.get("dim", 0)), values[0].type.rank + 1)
    shape = values[0].type.shape
    return joined(ctx, [reshaped(ctx.b, v, (*shape[:axis], 1, *shape[axis:])) for v in values], axis)


@converts("aten.hstack.default", "aten.vstack.default")
def stacked(ctx: NodeContext) -> Value:
    values = ctx.values("tensors")
    return joined(ctx, values, 1 if "hstack" in ctx.node.target and values[0].type.rank > 1 else 0)


@converts("aten.repeat.default", "aten.tile.default")
def repeat(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    counts = ctx.ints("repeats" if "repeats" in ctx.node.args else "dims")
    counts = [1] * (x.type.rank - len(counts)) + counts
    shape = [1] * (len(counts) - x.type.rank) + list(x.type.shape)
    if all(n == 1 for n in counts):
        return reshaped(b, x, shape)
    apart = [n for size in shape for n in (1, size)]
    spread = b.op("broadcast", [reshaped(b, x, apart)], shape=tuple(n for pair in zip(counts, shape) for n in pair))
    return reshaped(b, spread, [count * size for count, size in zip(counts, shape)])


@converts("aten.broadcast_tensors.default")
def broadcast_tensors(ctx: NodeContext) -> list[Value]:
    values = ctx.values("tensors")
    shape = tuple(np.broadcast_shapes(*(v.type.shape for v in values)))
    return [v if v.type.shape == shape else ctx.b.op("broadcast", [v], shape=shape) for v in values]


@converts("aten.repeat_interleave.self_int")
def repeat_interleave(ctx: NodeContext) -> Value:
    b, x, count = ctx.b, ctx.value("self"), int(ctx.get("repeats"))
    if not ctx.has("dim"):
        x = reshaped(b, x, (x.type.elements,))
    axis, shape = ctx.axis(int(ctx.get("dim", 0)), x.type.rank), x.type.shape
    apart = reshaped(b, x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    spread = b.op("broadcast", [apart], shape=(*shape[: axis + 1], count, *shape[axis + 1 :]))
    return reshaped(b, spread, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


@converts("aten.roll.default")
def roll(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    shape, shifts = x.type.shape, ctx.ints("shifts")
    axes = ctx.ints("dims", [])
    if not axes:
        x, axes = reshaped(b, x, (x.type.elements,)), [0]
    for shift, axis in zip(shifts, axes):
        axis = ctx.axis(axis, x.type.rank)
        extent = x.type.shape[axis]
        first = -shift % extent if extent else 0
        if first:
            x = b.op("concat", [cut(b, x, axis, (first, extent, 1)), cut(b, x, axis, (0, first, 1))], axis=axis)
    return reshaped(b, x, shape)


@converts("aten.flip.default")
def flip(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    return flipped(ctx, x, {ctx.axis(a, x.type.rank) for a in ctx.ints("dims")})


def flipped(ctx: NodeContext, x: Value, axes: Collection[int]) -> Value:
    """x with axes back to front."""
    if 0 in x.type.shape or not axes or not x.type.rank:
        return x
    starts = tuple(n - 1 if a in axes else 0 for a, n in enumerate(x.type.shape))
    stops = tuple(-1 if a in axes else n for a, n in enumerate(x.type.shape))
    return ctx.b.op(
        "slice", [x], starts=starts, stops=stops, steps=tuple(-1 if a in axes else 1 for a in range(x.type.rank))
    )


def padded(ctx: NodeContext, x: Value, pads: Sequence[int], value: Any = 0, mode: str = "constant") -> Value:
    """x with elements added, or taken away, from the last axis on: before and after each."""
    rank, b = x.type.rank, ctx.b
    low, high = [0] * rank, [0] * rank
    for position in range(len(pads) // 2):
        axis = rank - 1 - position
        low[axis], high[axis] = pads[2 * position], pads[2 * position + 1]
    for axis in range(rank):
        extent = x.type.shape[axis]
        if low[axis] < 0 or high[axis] < 0:
            x = cut(b, x, axis, (max(-low[axis], 0), extent + min(high[axis], 0), 1))
    low, high = [max(n, 0) for n in low], [max(n, 0) for n in high]
    if not any((*low, *high)):
        return x
    dtype = x.type.dtype
    fill = float(value) if dtype.is_float else bool(value) if dtype is DType.BOOL else int(value)
    return b.op("pad", [x], low=tuple(low), high=tuple(high), value=fill, mode=mode)


@converts("aten.constant_pad_nd.default", "aten.pad.default")
def pad(ctx: NodeContext) -> Value:
    mode = {"replicate": "edge", "circular": "wrap"}.get(ctx.get("mode", "constant"), ctx.get("mode", "constant"))
    return padded(ctx, ctx.value("self"), ctx.ints("pad"), ctx.get("value", 0), mode)


def _pads(name: str, mode: str) -> None:
    @converts(*(f"aten.{name}{rank}d.default" for rank in (1, 2, 3)))
    def convert(ctx: NodeContext) -> Value:
        return padded(ctx, ctx.value("self"), ctx.ints("padding"), 0, mode)


_pads("reflection_pad", "reflect")
_pads("replication_pad", "edge")


@converts("aten.tril.default", "aten.triu.default")
def triangle(ctx: NodeContext) -> Value:
    b, x, diagonal = ctx.b, ctx.value("self"), int(ctx.get("diagonal", 0))
    rows, columns = x.type.shape[-2:]
    row = b.op("iota", [], shape=(rows, 1), axis=0, dtype=DType.I64)
    column = b.op("iota", [], shape=(1, columns), axis=1, dtype=DType.I64)
    edge = b.op("add", [row, b.scalar(diagonal, DType.I64)])
    kept = b.op("less_equal" if "tril" in ctx.node.target else "greater_equal", [column, edge])
    return b.op("select", [kept, x, number(ctx, 0, x)])


@converts("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(ctx: NodeContext) -> Handle:
    rank = ctx.value("self").type.rank
    first, second = (ctx.axis(int(ctx.get(n, d)), rank) for n, d in (("dim1", 0), ("dim2", 1)))
    made = view_of_diagonal(ctx, int(ctx.get("offset", 0)), first, second)
    return fresh(made.read(ctx.b)) if "_copy." in ctx.node.target else made


def view_of_diagonal(ctx: NodeContext, offset: int, first: int, second: int, name: str = "self") -> Handle:
    """A diagonal of two axes of an argument, as its last axis."""
    shape = ctx.value(name).type.shape
    rank = len(shape)
    order = (*(a for a in range(rank) if a not in (first, second)), first, second)
    back = tuple(order.index(a) for a in range(rank))
    rows, columns = shape[first], shape[second]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    at = (np.arange(count) + max(-offset, 0)) * columns + np.arange(count) + max(offset, 0)
    turned = tuple(shape[a] for a in order)

    def flat(b: IRBuilder, x: Value) -> Value:
        return reshaped(b, b.op("transpose", [x], perm=order), (*turned[:-2], rows * columns))

    def take(b: IRBuilder, x: Value) -> Value:
        return b.op("gather", [flat(b, x), b.constant(at.astype(np.int64))], axis=rank - 2)

    def put(b: IRBuilder, base: Value, new: Value) -> Value:
        written = scattered(b, flat(b, base), new, rank - 2, at) if count else flat(b, base)
        return b.op("transpose", [reshaped(b, written, turned)], perm=back)

    return ctx.view(ctx.handle(name), View(take, put))


def _view_or_copy(ctx: NodeContext, view: View) -> Handle:
    made = ctx.view(ctx.handle("self"), view)
    return fresh(made.read(ctx.b)) if "_copy." in ctx.node.target else made


@converts("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(ctx: NodeContext) -> Handle:
    """Elements of a contiguous tensor by their distances in it."""
    of = ctx.handle("self")
    if of.parent is not None and of.read(ctx.b).type.elements != of.storage.value.type.elements:
        raise ctx.unsupported("a strided view of a part of a tensor")
    return _view_or_copy(ctx, _strided(ctx))


@converts("aten.as_strided_scatter.default")
def as_strided_scatter(ctx: NodeContext) -> Value:
    view, src = _strided(ctx), ctx.value("src")
    if view.put is None:
        raise ctx.unsupported("a write to a strided view that overlaps")
    return view.put(ctx.b, ctx.value("self"), src)


def _strided(ctx: NodeContext) -> View:
    """The elements of `self`, which is contiguous, that lie where size, strides and offset say."""
    count = ctx.value("self").type.elements
    sizes, strides = ctx.ints("size"), ctx.ints("stride")
    at: Any = np.full((), int(ctx.get("storage_offset", 0)), np.int64)
    for size, stride in zip(sizes, strides):
        at = at[..., None] + np.arange(size, dtype=np.int64) * stride
    if not is_row_major(ctx.metas.get(getattr(ctx.node.args["self"], "name", "")), ctx.state.symbols):
        raise ctx.unsupported("a strided view of a tensor that is not contiguous")
    at = at.reshape(-1)
    if at.size and int(at.max()) >= count:
        raise ctx.unsupported("a strided view beyond the tensor that it is given")
    whole = at.size == count and bool((at == np.arange(at.size)).all())

    def take(b: IRBuilder, x: Value) -> Value:
        flat = reshaped(b, x, (count,))
        return reshaped(b, flat if whole else b.op("gather", [flat, b.constant(at)], axis=0), sizes)

    def put(b: IRBuilder, base: Value, new: Value) -> Value:
        new = reshaped(b, new, (at.size,))
        written = new if whole else scattered(b, reshaped(b, base, (count,)), new, 0, at)
        return reshaped(b, written, base.type.shape)

    return View(take, put if at.size and len(np.unique(at)) == at.size else None)


@converts("aten.unfold.default")
def unfold(ctx: NodeContext) -> Handle:
    return one_way(ctx, _windows)


def _windows(ctx: NodeContext, x: Value) -> Value:
    """Windows of an axis, as a last axis."""
    b = ctx.b
    if not x.type.rank:
        return reshaped(b, x, (int(ctx.get("size")),))
    axis = ctx.axis(int(ctx.get("dimension")), x.type.rank)
    size, step = int(ctx.get("size")), int(ctx.get("step"))
    count = (x.type.shape[axis] - size) // step + 1
    at = np.arange(count)[:, None] * step + np.arange(size)
    found = b.op("gather", [x, b.constant(at.astype(np.int64))], axis=axis)
    order = [a for a in range(found.type.rank) if a != axis + 1]
    return b.op("transpose", [found], perm=(*order, axis + 1)) if axis + 2 != found.type.rank else found


@converts("aten.pixel_shuffle.default")
def pixel_shuffle(ctx: NodeContext) -> Value:
    b, x, r = ctx.b, ctx.value("self"), int(ctx.get("upscale_factor"))
    *lead, c, h, w = x.type.shape
    n = len(lead)
    apart = reshaped(b, x, (*lead, c // (r * r), r, r, h, w))
    turned = b.op("transpose", [apart], perm=(*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshaped(b, turned, (*lead, c // (r * r), h * r, w * r))


@converts("aten.pixel_unshuffle.default")
def pixel_unshuffle(ctx: NodeContext) -> Value:
    b, x, r = ctx.b, ctx.value("self"), int(ctx.get("downscale_factor"))
    *lead, c, h, w = x.type.shape
    n = len(lead)
    apart = reshaped(b, x, (*lead, c, h // r, r, w // r, r))
    turned = b.op("transpose", [apart], perm=(*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshaped(b, turned, (*lead, c * r * r, h // r, w // r))


@converts("aten.channel_shuffle.default")
def channel_shuffle(ctx: NodeContext) -> Value:
    b, x, groups = ctx.b, ctx.value("self"), int(ctx.get("groups"))
    n, c, *rest = x.type.shape
    apart = reshaped(b, x, (n, groups, c // groups, math.prod(rest)))
    return reshaped(b, b.op("transpose", [apart], perm=(0, 2, 1, 3)), x.type.shape)


@converts("aten.slice_scatter.default")
def slice_scatter(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    axis = ctx.axis(int(ctx.get("dim", 0)), x.type.rank)
    return pasted(ctx.b, x, ctx.value("src"), axis, slice_bounds(ctx, x.type.shape[axis]))


@converts("aten.select_scatter.default")
def select_scatter(ctx: NodeContext) -> Value:
    x, index = ctx.value("self"), int(ctx.get("index"))
    axis, shape = ctx.axis(int(ctx.get("dim")), x.type.rank), x.type.shape
    index += shape[axis] if index < 0 else 0
    row = reshaped(ctx.b, ctx.value("src"), (*shape[:axis], 1, *shape[axis + 1 :]))
    return pasted(ctx.b, x, row, axis, (index, index + 1, 1))
