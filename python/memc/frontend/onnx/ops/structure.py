# SPDX-License-Identifier: Apache-2.0
"""Shapes and layout: Reshape, Transpose, Slice, Concat, Pad and their kin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.errors import InvalidError
from memc.ir.ops.pad import fill_value
from memc.ir.ops.shared.common import broadcast_shapes
from memc.ir.types import DType

from ..context import Known, NodeContext, imports


def invalid(ctx: NodeContext, why: str) -> InvalidError:
    """An error that names the node and op, for input that breaks the standard; raise it."""
    label = ctx.node.name or (ctx.node.output[0] if ctx.node.output else "")
    return InvalidError(f"invalid: node `{label}` ({ctx.node.op_type}): {why}")


def axis_of(ctx: NodeContext, axis: int, rank: int) -> int:
    """A possibly negative axis as one in [0, rank)."""
    if not -rank <= axis < rank:
        raise invalid(ctx, f"expected an axis in [{-rank}, {rank}), got {axis}")
    return axis % rank


def ints_of(ctx: NodeContext, name: str, index: int, since: int) -> tuple[int, ...] | None:
    """An integer list that became an input in opset `since` and was an attribute before; None if it is not given."""
    if ctx.opset >= since:
        return ctx.ints(index) if ctx.has(index) else None
    found = ctx.attr(name)
    return None if found is None else tuple(int(v) for v in found)


def reshape(ctx: NodeContext, value: Value, shape: Sequence[int]) -> Value:
    """`value` in another shape; no op if it has it."""
    return value if value.type.shape == tuple(shape) else ctx.b.op("reshape", [value], shape=tuple(shape))


def cut(ctx: NodeContext, value: Value, bounds: dict[int, tuple[int, int, int]]) -> Value:
    """A slice by start, stop and step of some axes; no op if it takes everything."""
    full = [bounds.get(axis, (0, extent, 1)) for axis, extent in enumerate(value.type.shape)]
    if all(b == (0, extent, 1) for b, extent in zip(full, value.type.shape)):
        return value
    starts, stops, steps = (tuple(b[i] for b in full) for i in range(3))
    return ctx.b.op("slice", [value], starts=starts, stops=stops, steps=steps)


@imports("Reshape")
def reshape_node(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    wanted = ints_of(ctx, "shape", 1, 5)
    if wanted is None:
        raise invalid(ctx, "no shape is given")
    source = x.type.shape
    copied = set() if ctx.attr("allowzero", 0) else {axis for axis, extent in enumerate(wanted) if extent == 0}
    for axis in copied:
        if axis >= len(source):
            raise invalid(ctx, f"shape {list(wanted)} copies axis {axis} of {x.type}, which has no such axis")
    shape = [source[axis] if axis in copied else extent for axis, extent in enumerate(wanted)]
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise invalid(ctx, f"expected extents of at least 0 and at most one -1, got {list(wanted)}")
    if -1 in shape:
        # Copied axes count on neither side: that way -1 has a value beside a copied 0, too.
        have = math.prod(extent for axis, extent in enumerate(source) if axis not in copied)
        given = math.prod(extent for axis, extent in enumerate(shape) if axis not in copied and extent != -1)
        if given == 0 or have % given:
            raise invalid(ctx, f"{x.type} does not fit shape {list(wanted)}")
        shape[shape.index(-1)] = have // given
    if math.prod(shape) != x.type.elements:
        raise invalid(ctx, f"expected {x.type.elements} elements as in {x.type}, got shape {list(wanted)}")
    return [reshape(ctx, x, shape)]


@imports("Flatten")
def flatten(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    axis = int(ctx.attr("axis", 1))
    if not -x.type.rank <= axis <= x.type.rank:
        raise invalid(ctx, f"expected an axis in [{-x.type.rank}, {x.type.rank}], got {axis}")
    axis = axis + x.type.rank if axis < 0 else axis
    return [reshape(ctx, x, (math.prod(x.type.shape[:axis]), math.prod(x.type.shape[axis:])))]


@imports("Squeeze")
def squeeze(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    given = ints_of(ctx, "axes", 1, 13)
    if given is None:
        return [reshape(ctx, x, [d for d in x.type.shape if d != 1])]
    axes = {axis_of(ctx, a, x.type.rank) for a in given}
    for axis in sorted(axes):
        if x.type.shape[axis] != 1:
            raise invalid(ctx, f"expected extent 1 on axis {axis} of {x.type}, got {x.type.shape[axis]}")
    return [reshape(ctx, x, [d for axis, d in enumerate(x.type.shape) if axis not in axes])]


@imports("Unsqueeze")
def unsqueeze(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    given = ints_of(ctx, "axes", 1, 13) or ()
    rank = x.type.rank + len(given)
    axes = {axis_of(ctx, a, rank) for a in given}
    if len(axes) != len(given):
        raise invalid(ctx, f"axes {list(given)} name an axis twice")
    rest = iter(x.type.shape)
    return [reshape(ctx, x, [1 if axis in axes else next(rest) for axis in range(rank)])]


@imports("Transpose")
def transpose(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    perm = tuple(int(p) for p in ctx.attr("perm", range(x.type.rank)[::-1]))
    return [x if perm == tuple(range(x.type.rank)) else ctx.b.op("transpose", [x], perm=perm)]


@imports("Expand")
def expand(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    shape = broadcast_shapes(x.type.shape, ctx.ints(1))
    return [x if shape == x.type.shape else ctx.b.op("broadcast", [x], shape=shape)]


@imports("Tile")
def tile(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    if ctx.opset < 6:
        repeats = [1] * x.type.rank
        repeats[axis_of(ctx, ctx.ints(2)[0], x.type.rank)] = ctx.ints(1)[0]
    else:
        repeats = list(ctx.ints(1))
    if len(repeats) != x.type.rank or min(repeats, default=0) < 0:
        raise invalid(ctx, f"expected {x.type.rank} repeats of at least 0, got {repeats}")
    if all(r == 1 for r in repeats):
        return [x]
    apart = [d for extent in x.type.shape for d in (1, extent)]
    repeated = [d for extent, times in zip(x.type.shape, repeats) for d in (times, extent)]
    wide = ctx.b.op("broadcast", [reshape(ctx, x, apart)], shape=tuple(repeated))
    return [reshape(ctx, wide, [extent * times for extent, times in zip(x.type.shape, repeats)])]


@imports("Slice")
def slice_node(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    starts, ends = ints_of(ctx, "starts", 1, 10), ints_of(ctx, "ends", 2, 10)
    if starts is None or ends is None:
        raise invalid(ctx, "starts and ends are missing")
    axes = ints_of(ctx, "axes", 3, 10) or tuple(range(len(starts)))
    steps = (ctx.ints(4) if ctx.opset >= 10 and ctx.has(4) else None) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise invalid(ctx, f"expected as many ends, axes and steps as starts, got {starts}, {ends}, {axes} and {steps}")
    bounds = {}
    for start, end, axis, step in zip(starts, ends, axes, steps):
        if step == 0:
            raise invalid(ctx, "expected steps other than 0")
        axis = axis_of(ctx, axis, x.type.rank)
        bounds[axis] = slice(start, end, step).indices(x.type.shape[axis])
    return [cut(ctx, x, bounds)]


@imports("Split")
def split(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    axis = axis_of(ctx, int(ctx.attr("axis", 0)), x.type.rank)
    extent, count = x.type.shape[axis], len(ctx.node.output)
    sizes = ctx.ints(1) if (ctx.opset >= 13 or ctx.opset < 2) and ctx.has(1) else ctx.attr("split")
    if sizes is None:
        parts = int(ctx.attr("num_outputs", count))
        if parts < 1 or (ctx.opset < 18 and extent % parts):
            raise invalid(ctx, f"axis {axis} of {x.type} does not split into {parts} equal parts")
        chunk = -(-extent // parts)
        sizes = [max(min(chunk, extent - i * chunk), 0) for i in range(parts)]
    if sum(sizes) != extent or min(sizes, default=0) < 0 or len(sizes) < count:
        raise invalid(
            ctx, f"expected {count} sizes that add up to {extent} on axis {axis} of {x.type}, got {list(sizes)}"
        )
    results: list[Known] = []
    at = 0
    for size in list(sizes)[:count]:
        results.append(cut(ctx, x, {axis: (at, at + int(size), 1)}))
        at += int(size)
    return results


@imports("Concat")
def concat(ctx: NodeContext) -> Sequence[Known]:
    parts = [ctx.value(i) for i in range(len(ctx.inputs))]
    axis = axis_of(ctx, int(ctx.attr("axis", 1)), parts[0].type.rank)
    return [parts[0] if len(parts) == 1 else ctx.b.op("concat", parts, axis=axis)]


@imports("Pad")
def pad(ctx: NodeContext) -> Sequence[Known]:
    x, mode = ctx.value(0), str(ctx.attr("mode", "constant"))
    rank = x.type.rank
    pads = ints_of(ctx, "paddings" if ctx.opset < 2 else "pads", 1, 11)
    axes = ctx.ints(3) if ctx.opset >= 18 and ctx.has(3) else tuple(range(rank))
    if pads is None or len(pads) != 2 * len(axes):
        raise invalid(ctx, f"expected {2 * len(axes)} pads for {x.type}, got {pads}")
    low, high = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        low[axis_of(ctx, axis, rank)] = pads[i]
        high[axis_of(ctx, axis, rank)] = pads[len(axes) + i]
    bounds = {}
    for axis, extent in enumerate(x.type.shape):
        start, stop = max(-low[axis], 0), extent - max(-high[axis], 0)
        if start > extent or stop < start:
            raise invalid(ctx, f"pads {list(pads)} take away more than there is on axis {axis} of {x.type}")
        bounds[axis] = (start, stop, 1)
    inner = cut(ctx, x, bounds)
    low, high = [max(v, 0) for v in low], [max(v, 0) for v in high]
    if not any(low + high):
        return [inner]
    known = ctx.known(2) if ctx.opset >= 11 else None
    if mode == "constant" and ctx.opset >= 11 and ctx.has(2) and known is None:
        fill = reshape(ctx, ctx.value(2), ())
        everywhere = ctx.b.op("broadcast", [ctx.b.scalar(True, DType.BOOL)], shape=inner.type.shape)
        mask = _pad(ctx, everywhere, low, high, False, mode)
        return [ctx.b.op("select", [mask, _pad(ctx, inner, low, high, 0, mode), fill])]
    value = (
        ctx.attr("value", 0.0) if ctx.opset < 11 else (known.reshape(-1)[0] if known is not None and known.size else 0)
    )
    return [_pad(ctx, inner, low, high, value, mode)]


def _pad(ctx: NodeContext, x: Value, low: Sequence[int], high: Sequence[int], value: object, mode: str) -> Value:
    fill = fill_value(value, x.type.dtype)
    return ctx.b.op("pad", [x], low=tuple(low), high=tuple(high), value=fill, mode=mode)


@imports("CenterCropPad")
def center_crop_pad(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    rank = x.type.rank
    axes = [axis_of(ctx, int(a), rank) for a in ctx.attr("axes", tuple(range(rank)))]
    wanted = ctx.ints(1)
    if len(wanted) != len(axes):
        raise invalid(ctx, f"expected {len(axes)} extents, got {list(wanted)}")
    bounds = {}
    low, high = [0] * rank, [0] * rank
    for axis, extent in zip(axes, wanted):
        spare = x.type.shape[axis] - extent
        if spare >= 0:
            bounds[axis] = (spare // 2, spare // 2 + extent, 1)
        else:
            low[axis] = -spare // 2
            high[axis] = -spare - low[axis]
    inner = cut(ctx, x, bounds)
    return [_pad(ctx, inner, low, high, 0, "constant") if any(low + high) else inner]


@imports("DepthToSpace")
def depth_to_space(ctx: NodeContext) -> Sequence[Known]:
    x, block = ctx.value(0), int(ctx.attr("blocksize", 1))
    if x.type.rank != 4 or block < 1 or x.type.shape[1] % (block * block):
        raise invalid(ctx, f"expected [N, C, H, W] with C a multiple of blocksize^2 = {block * block}, got {x.type}")
    n, c, h, w = x.type.shape
    depth = c // (block * block)
    if ctx.attr("mode", "DCR") == "DCR":
        split_shape, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split_shape, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = ctx.b.op("transpose", [reshape(ctx, x, split_shape)], perm=perm)
    return [reshape(ctx, moved, (n, depth, h * block, w * block))]


@imports("SpaceToDepth")
def space_to_depth(ctx: NodeContext) -> Sequence[Known]:
    x, block = ctx.value(0), int(ctx.attr("blocksize", 1))
    if x.type.rank != 4 or block < 1 or x.type.shape[2] % block or x.type.shape[3] % block:
        raise invalid(ctx, f"expected [N, C, H, W] with H and W multiples of blocksize {block}, got {x.type}")
    n, c, h, w = x.type.shape
    apart = reshape(ctx, x, (n, c, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if ctx.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = ctx.b.op("transpose", [apart], perm=perm)
    return [reshape(ctx, moved, (n, c * block * block, h // block, w // block))]


@imports("ConstantOfShape")
def constant_of_shape(ctx: NodeContext) -> Sequence[Known]:
    shape = ctx.ints(0)
    if min(shape, default=0) < 0:
        raise invalid(ctx, f"expected extents of at least 0, got {list(shape)}")
    value = np.asarray(ctx.attr("value", np.zeros(1, np.float32))).reshape(-1)
    if value.size != 1:
        raise invalid(ctx, f"expected one element as attribute `value`, got {value.size}")
    return [ctx.b.op("broadcast", [ctx.b.constant(value.reshape(()))], shape=shape)]
