# SPDX-License-Identifier: Apache-2.0
"""Pools over windows, fixed and adaptive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Attr, Value
from memc.ir.ops.reduce import mean, reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, converts
from .convolution import spread
from .views import reshaped


def _rank(ctx: NodeContext) -> int:
    """Spatial axes, of which the overload's name tells."""
    return int(next(c for c in ctx.node.target if c in "123"))


def _batched(ctx: NodeContext) -> tuple[Value, bool]:
    x = ctx.value("self")
    if x.type.rank == _rank(ctx) + 1:
        return reshaped(ctx.b, x, (1, *x.type.shape)), True
    return x, False


def _unbatched(ctx: NodeContext, y: Value, one: bool) -> Value:
    return reshaped(ctx.b, y, y.type.shape[1:]) if one else y


def _window(ctx: NodeContext, spatial: Sequence[int]) -> tuple[dict[str, Attr], tuple[int, ...]]:
    """The attributes of a pool, and how much of the padding after each axis only rounds the number of windows up."""
    rank = len(spatial)
    kernel = spread(ctx.ints("kernel_size"), rank)
    strides = spread(ctx.ints("stride", []) or kernel, rank)
    pads, dilations = (spread(ctx.ints(name, [d]), rank) for name, d in (("padding", 0), ("dilation", 1)))
    extra = [0] * rank
    if ctx.get("ceil_mode", False):
        for axis in range(rank):
            room = spatial[axis] + 2 * pads[axis] - dilations[axis] * (kernel[axis] - 1) - 1
            windows = -(-room // strides[axis]) + 1
            # A window that begins beyond the input and its padding before does not count.
            if (windows - 1) * strides[axis] >= spatial[axis] + pads[axis]:
                windows -= 1
            extra[axis] = max((windows - 1) * strides[axis] - room, 0)
    high = tuple(p + e for p, e in zip(pads, extra))
    return {"kernel": kernel, "strides": strides, "pads": (*pads, *high), "dilations": dilations}, tuple(extra)


@converts("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def max_pool(ctx: NodeContext) -> Value:
    x, one = _batched(ctx)
    attrs, _ = _window(ctx, x.type.shape[2:])
    return _unbatched(ctx, ctx.b.op("max_pool", [x], **attrs), one)


@converts("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool_with_indices(ctx: NodeContext) -> Sequence[Value]:
    """Positions count within a channel, where the op counts in the whole."""
    b, (x, one) = ctx.b, _batched(ctx)
    attrs, _ = _window(ctx, x.type.shape[2:])
    area = int(np.prod(x.type.shape[2:]))
    at = b.op("mod", [b.op("max_pool_indices", [x], **attrs), b.scalar(area, DType.I64)])
    return [_unbatched(ctx, b.op("max_pool", [x], **attrs), one), _unbatched(ctx, at, one)]


@converts("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(ctx: NodeContext) -> Value:
    b, (x, one) = ctx.b, _batched(ctx)
    attrs, extra = _window(ctx, x.type.shape[2:])
    divisor = ctx.get("divisor_override")
    if not x.type.dtype.is_float:
        raise ctx.unsupported(f"means of {x.type.dtype.value}, which PyTorch rounds; convert to floats first")
    if divisor is not None:
        total = b.op("sum_pool", [widen(b, x)], **attrs)
        y = cast(b, b.op("mul", [total, b.scalar(1 / divisor, total.type.dtype)]), x.type.dtype)
    else:
        y = b.op("avg_pool", [x], **attrs, extra=extra, count_include_pad=bool(ctx.get("count_include_pad", True)))
    return _unbatched(ctx, y, one)


def _cells(extent: int, wanted: int) -> list[range]:
    """The elements that each cell of an adaptive pool covers."""
    return [range(n * extent // wanted, -(-(n + 1) * extent // wanted)) for n in range(wanted)]


def _uneven_means(ctx: NodeContext, x: Value, sizes: Sequence[int]) -> Value:
    """Means of cells of several sizes, by tables of positions and weights."""
    b = ctx.b
    wide = widen(b, x)
    operands, axes = [wide], []
    for axis, wanted in enumerate(sizes, start=2):
        cells = _cells(x.type.shape[axis], wanted)
        taps = max(len(cell) for cell in cells)
        at, weights = np.zeros((wanted, taps), np.int32), np.zeros((wanted, taps), wide.type.dtype.numpy)
        for n, cell in enumerate(cells):
            at[n, : len(cell)], at[n, len(cell) :] = cell, cell[0]
            weights[n, : len(cell)] = 1 / len(cell)
        operands += [b.constant(at), b.constant(weights)]
        axes.append(axis)
    return cast(b, b.op("resize", operands, axes=tuple(axes)), x.type.dtype)


def _even(ctx: NodeContext, x: Value, sizes: Sequence[int]) -> dict[str, Attr] | None:
    """The window that an adaptive pool's cells all are; None if they differ."""
    spatial = x.type.shape[2:]
    if any(n % s for n, s in zip(spatial, sizes)):
        return None
    kernel = tuple(n // s for n, s in zip(spatial, sizes))
    return {"kernel": kernel, "strides": kernel, "pads": (0,) * (2 * len(kernel)), "dilations": (1,) * len(kernel)}


@converts(*(f"aten.adaptive_avg_pool{rank}d.default" for rank in (1, 2, 3)), "aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool(ctx: NodeContext) -> Value:
    b, (x, one) = ctx.b, _batched(ctx)
    sizes = spread(ctx.ints("output_size"), _rank(ctx))
    if all(n == 1 for n in sizes):
        return _unbatched(ctx, mean(b, x, range(2, x.type.rank), True), one)
    attrs = _even(ctx, x, sizes)
    if tuple(sizes) == x.type.shape[2:]:
        y = x
    elif attrs is None:
        y = _uneven_means(ctx, x, sizes)
    else:
        y = b.op("avg_pool", [x], **attrs, extra=(0,) * len(sizes), count_include_pad=True)
    return _unbatched(ctx, y, one)


@converts(*(f"aten.adaptive_max_pool{rank}d.default" for rank in (1, 2, 3)))
def adaptive_max_pool(ctx: NodeContext) -> Sequence[Value]:
    b, (x, one) = ctx.b, _batched(ctx)
    sizes = spread(ctx.ints("output_size"), _rank(ctx))
    attrs = _even(ctx, x, sizes)
    if attrs is None:
        raise ctx.unsupported(f"cells of several sizes: {list(x.type.shape[2:])} to {list(sizes)}")
    area = int(np.prod(x.type.shape[2:]))
    at = b.op("mod", [b.op("max_pool_indices", [x], **attrs), b.scalar(area, DType.I64)])
    if all(n == 1 for n in sizes):
        y = reduce(b, "max", x, range(2, x.type.rank), True)
    else:
        y = b.op("max_pool", [x], **attrs)
    return [_unbatched(ctx, y, one), _unbatched(ctx, at, one)]
