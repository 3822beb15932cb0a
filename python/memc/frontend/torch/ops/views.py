# SPDX-License-Identifier: Apache-2.0
"""Views: overloads whose results share their operand's bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Value

from ..context import NodeContext, converts
from ..graph import Meta
from ..handles import Handle, View, fresh
from ..sizes import evaluated


def reshaped(b: IRBuilder, x: Value, shape: Sequence[int]) -> Value:
    """x in another shape; itself if it has it."""
    return x if x.type.shape == tuple(shape) else b.op("reshape", [x], shape=tuple(shape))


def resolved_shape(ctx: NodeContext, sizes: Sequence[int], elements: int) -> tuple[int, ...]:
    """A shape of which one size may be -1."""
    if -1 not in sizes:
        return tuple(sizes)
    rest = math.prod(n for n in sizes if n != -1)
    if not rest or elements % rest:
        raise ctx.invalid(f"{elements} elements do not fit the shape {list(sizes)}")
    return tuple(elements // rest if n == -1 else n for n in sizes)


def reshape_view(shape: Sequence[int]) -> View:
    def put(b: IRBuilder, base: Value, new: Value) -> Value:
        return reshaped(b, new, base.type.shape)

    return View(lambda b, x: reshaped(b, x, shape), put)


def is_strided_view(meta: Meta | None, shape: Sequence[int], symbols: dict[str, int]) -> bool:
    """Whether a tensor of these strides can be seen in another shape, of as many elements, without a copy, as far as is known."""
    if meta is None or meta.strides is None:
        return True
    sizes, strides = ([evaluated(d, symbols) for d in dims] for dims in (meta.shape, meta.strides))
    if 0 in sizes:
        return True
    left = [n for n in shape if n != 1]
    # Each run of axes that lie as one axis must be made up by axes of the new shape.
    for run in _runs(sizes, strides):
        elements = 1
        while elements < run:
            elements *= left.pop()
        if elements != run:
            return False
    return True


def _runs(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Elements of the runs of axes that lie as one axis, the last run first."""
    runs: list[int] = []
    following = None  # The stride that would go on with the last run.
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size == 1:
            continue
        if stride == following:
            runs[-1] *= size
        else:
            runs.append(size)
        following = size * stride
    return runs


def is_row_major(meta: Meta | None, symbols: dict[str, int]) -> bool:
    """Whether a tensor lies in row-major order, as far as is known."""
    if meta is None or meta.strides is None:
        return True
    step = 1
    for size, stride in zip(*([evaluated(d, symbols) for d in reversed(dims)] for dims in (meta.shape, meta.strides))):
        if size > 1 and stride != step:
            return False
        step *= max(size, 1)
    return True


def one_way(ctx: NodeContext, take: Callable[[NodeContext, Value], Value]) -> Handle:
    """A view of `self` that follows writes to that one, and refuses those to itself."""
    return ctx.view(ctx.handle("self"), View(lambda b, x: take(ctx, x), None))


def reshape_to(ctx: NodeContext, shape: Sequence[int], name: str = "self") -> Handle:
    """A view in another shape, or a copy where strides do not allow one."""
    of = ctx.handle(name)
    arg = ctx.node.args[name]
    meta = ctx.metas.get(arg.name) if hasattr(arg, "name") else None
    if math.prod(shape) != of.read(ctx.b).type.elements:
        raise ctx.invalid(f"expected a shape of {of.read(ctx.b).type.elements} elements, got {list(shape)}")
    if is_strided_view(meta, shape, ctx.state.symbols):
        return ctx.view(of, reshape_view(shape))
    return fresh(reshaped(ctx.b, of.read(ctx.b), shape))


@converts("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.view_copy.default")
def view(ctx: NodeContext) -> Handle:
    sizes = ctx.ints("size" if "size" in ctx.node.args else "shape")
    return reshape_to(ctx, resolved_shape(ctx, sizes, ctx.value("self").type.elements))


@converts("aten.view_as.default", "aten.reshape_as.default")
def view_as(ctx: NodeContext) -> Handle:
    return reshape_to(ctx, ctx.value("other").type.shape)


@converts("aten.unsqueeze.default")
def unsqueeze(ctx: NodeContext) -> Handle:
    shape = list(ctx.value("self").type.shape)
    shape.insert(ctx.axis(int(ctx.get("dim")), len(shape) + 1), 1)
    return reshape_to(ctx, shape)


@converts("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(ctx: NodeContext) -> Handle:
    shape = ctx.value("self").type.shape
    axes = range(len(shape)) if not ctx.has("dim") else [ctx.axis(a, len(shape)) for a in ctx.ints("dim")]
    return reshape_to(ctx, [n for a, n in enumerate(shape) if n != 1 or a not in axes])


@converts("aten.flatten.using_ints")
def flatten(ctx: NodeContext) -> Handle:
    shape = ctx.value("self").type.shape
    start, end = (ctx.axis(int(ctx.get(n, d)), len(shape)) for n, d in (("start_dim", 0), ("end_dim", -1)))
    if not shape:
        return reshape_to(ctx, (1,))
    return reshape_to(ctx, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@converts("aten.unflatten.int")
def unflatten(ctx: NodeContext) -> Handle:
    shape = ctx.value("self").type.shape
    axis = ctx.axis(int(ctx.get("dim")), len(shape))
    inner = resolved_shape(ctx, ctx.ints("sizes"), shape[axis])
    return reshape_to(ctx, (*shape[:axis], *inner, *shape[axis + 1 :]))


def permuted(b: IRBuilder, x: Value, perm: Sequence[int]) -> Value:
    """x with its axes in another order."""
    return x if list(perm) == sorted(perm) else b.op("transpose", [x], perm=tuple(perm))


def _transposed(ctx: NodeContext, perm: Sequence[int]) -> Handle:
    order = tuple(perm)
    back = tuple(order.index(axis) for axis in range(len(order)))

    def turned(b: IRBuilder, x: Value, by: tuple[int, ...]) -> Value:
        return x if by == tuple(range(len(by))) else b.op("transpose", [x], perm=by)

    return ctx.view(
        ctx.handle("self"), View(lambda b, x: turned(b, x, order), lambda b, base, new: turned(b, new, back))
    )


@converts("aten.permute.default")
def permute(ctx: NodeContext) -> Handle:
    rank = ctx.value("self").type.rank
    return _transposed(ctx, [ctx.axis(a, rank) for a in ctx.ints("dims")])


@converts("aten.transpose.int", "aten.swapaxes.default")
def transpose(ctx: NodeContext) -> Handle:
    rank = ctx.value("self").type.rank
    names = ("dim0", "dim1") if "dim0" in ctx.node.args else ("axis0", "axis1")
    first, second = (ctx.axis(int(ctx.get(name)), rank) for name in names)
    perm = list(range(rank))
    if rank:
        perm[first], perm[second] = second, first
    return _transposed(ctx, perm)


@converts("aten.t.default", "aten.numpy_T.default", "aten.mT.default")
def t(ctx: NodeContext) -> Handle:
    rank = ctx.value("self").type.rank
    if "mT" in ctx.node.target:
        return _transposed(ctx, [*range(rank - 2), rank - 1, rank - 2])
    return _transposed(ctx, range(rank - 1, -1, -1))


@converts("aten.movedim.int", "aten.movedim.intlist")
def movedim(ctx: NodeContext) -> Handle:
    rank = ctx.value("self").type.rank
    source, to = ([ctx.axis(a, rank) for a in ctx.ints(name)] for name in ("source", "destination"))
    perm: list[int | None] = [None] * rank
    for s, d in zip(source, to):
        perm[d] = s
    rest = iter(a for a in range(rank) if a not in source)
    return _transposed(ctx, [next(rest) if a is None else a for a in perm])


@converts("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default", "aten.expand_copy.default")
def expand(ctx: NodeContext) -> Handle:
    shape = ctx.value("self").type.shape
    sizes = list(ctx.value("other").type.shape) if "expand_as" in ctx.node.target else ctx.ints("size")
    lead = len(sizes) - len(shape)
    wanted = tuple(shape[a - lead] if n == -1 else n for a, n in enumerate(sizes))

    def take(b: IRBuilder, x: Value) -> Value:
        return x if x.type.shape == wanted else b.op("broadcast", [x], shape=wanted)

    put = (lambda b, base, new: new) if wanted == shape else None
    return ctx.view(ctx.handle("self"), View(take, put))


Bounds = tuple[int, int, int]
"""Start, stop and step."""


def cut(b: IRBuilder, x: Value, axis: int, bounds: Bounds) -> Value:
    """The elements from start to before stop of an axis; x if those are all."""
    start, stop, step = bounds
    if (start, stop, step) == (0, x.type.shape[axis], 1):
        return x
    rank = x.type.rank
    starts = tuple(start if a == axis else 0 for a in range(rank))
    stops = tuple(stop if a == axis else n for a, n in enumerate(x.type.shape))
    return b.op("slice", [x], starts=starts, stops=stops, steps=tuple(step if a == axis else 1 for a in range(rank)))


def pasted(b: IRBuilder, base: Value, new: Value, axis: int, bounds: Bounds) -> Value:
    """`base` with the elements of `cut` replaced by `new`."""
    start, stop, step = bounds
    extent = base.type.shape[axis]
    if step != 1:
        positions = np.arange(start, stop, step)
        return scattered(b, base, new, axis, positions)
    parts = [cut(b, base, axis, (0, start, 1))] if start else []
    parts.append(new)
    if stop < extent:
        parts.append(cut(b, base, axis, (stop, extent, 1)))
    return b.op("concat", parts, axis=axis) if len(parts) > 1 else new


def scattered(b: IRBuilder, base: Value, new: Value, axis: int, positions: Any) -> Value:
    column = [1] * base.type.rank
    column[axis] = len(positions)
    indices = b.op("broadcast", [b.constant(positions.astype(np.int64).reshape(column))], shape=new.type.shape)
    return b.op("scatter_elements", [base, indices, new], axis=axis, reduction="none")


def slice_bounds(ctx: NodeContext, extent: int) -> Bounds:
    """What `slice` takes, with everything out of range clamped."""
    start, stop, step = int(ctx.get("start", 0)), ctx.get("end", None), int(ctx.get("step", 1))
    stop = extent if stop is None else int(stop)
    start, stop = (min(max(n + extent if n < 0 else n, 0), extent) for n in (start, stop))
    return start, max(start, stop), step


def slice_view(axis: int, bounds: Bounds) -> View:
    return View(lambda b, x: cut(b, x, axis, bounds), lambda b, base, new: pasted(b, base, new, axis, bounds))


@converts("aten.slice.Tensor")
def slice_node(ctx: NodeContext) -> Handle:
    shape = ctx.value("self").type.shape
    axis = ctx.axis(int(ctx.get("dim", 0)), len(shape))
    return ctx.view(ctx.handle("self"), slice_view(axis, slice_bounds(ctx, shape[axis])))


@converts("aten.narrow.default")
def narrow(ctx: NodeContext) -> Handle:
    shape = ctx.value("self").type.shape
    axis, start, length = ctx.axis(int(ctx.get("dim")), len(shape)), int(ctx.get("start")), int(ctx.get("length"))
    start += shape[axis] if start < 0 else 0
    return ctx.view(ctx.handle("self"), slice_view(axis, (start, start + length, 1)))


def select_view(axis: int, index: int) -> View:
    bounds = (index, index + 1, 1)

    def take(b: IRBuilder, x: Value) -> Value:
        shape = x.type.shape
        return reshaped(b, cut(b, x, axis, bounds), (*shape[:axis], *shape[axis + 1 :]))

    def put(b: IRBuilder, base: Value, new: Value) -> Value:
        shape = base.type.shape
        return pasted(b, base, reshaped(b, new, (*shape[:axis], 1, *shape[axis + 1 :])), axis, bounds)

    return View(take, put)


@converts("aten.select.int")
def select(ctx: NodeContext) -> Handle:
    shape = ctx.value("self").type.shape
    axis = ctx.axis(int(ctx.get("dim")), len(shape))
    index = ctx.get("index")
    if not isinstance(index, int):
        raise ctx.unsupported("expected an index that is known at compile time, got a tensor")
    return ctx.view(ctx.handle("self"), select_view(axis, index + shape[axis] if index < 0 else index))


@converts("aten.unbind.int")
def unbind(ctx: NodeContext) -> list[Handle]:
    shape = ctx.value("self").type.shape
    axis = ctx.axis(int(ctx.get("dim", 0)), len(shape))
    return [ctx.view(ctx.handle("self"), select_view(axis, n)) for n in range(shape[axis])]


def pieces(ctx: NodeContext, bounds: Sequence[tuple[int, int]], axis: int) -> list[Handle]:
    """Views of an axis from starts to before stops."""
    return [ctx.view(ctx.handle("self"), slice_view(axis, (start, stop, 1))) for start, stop in bounds]


def _pieces(ctx: NodeContext, sizes: Sequence[int], axis: int) -> list[Handle]:
    ends = list(itertools.accumulate(sizes))
    return pieces(ctx, [(end - size, end) for size, end in zip(sizes, ends)], axis)


def even(extent: int, size: int) -> list[int]:
    return [min(size, extent - start) for start in range(0, extent, max(size, 1))] or [0]


@converts(
    "aten.split.Tensor", "aten.split_with_sizes.default", "aten.split.sizes", "aten.split_with_sizes_copy.default"
)
def split(ctx: NodeContext) -> list[Handle]:
    shape = ctx.value("self").type.shape
    axis = ctx.axis(int(ctx.get("dim", 0)), len(shape))
    if ctx.node.target == "aten.split.Tensor":
        return _pieces(ctx, even(shape[axis], int(ctx.get("split_size"))), axis)
    return _pieces(ctx, ctx.ints("split_sizes" if "split_sizes" in ctx.node.args else "split_size"), axis)


@converts("aten.chunk.default")
def chunk(ctx: NodeContext) -> list[Handle]:
    shape = ctx.value("self").type.shape
    axis, count = ctx.axis(int(ctx.get("dim", 0)), len(shape)), int(ctx.get("chunks"))
    return _pieces(ctx, even(shape[axis], -(-shape[axis] // count)), axis)
