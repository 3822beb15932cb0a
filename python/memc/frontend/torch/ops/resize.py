# SPDX-License-Identifier: Apache-2.0
"""Upsampling: sizes are known at import, so that positions and weights become tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from memc.frontend.resize_kernels import cubic_kernel, linear_kernel
from memc.ir.core import Array, Value
from memc.ir.ops.shared.casts import cast, widen

from ..context import NodeContext, converts


def _sizes(ctx: NodeContext, spatial: Sequence[int]) -> list[int]:
    """The result's spatial sizes."""
    if ctx.has("output_size"):
        return ctx.ints("output_size")
    return [int(np.floor(n * float(s))) for n, s in zip(spatial, ctx.get("scale_factors"))]


def _scales(ctx: NodeContext, spatial: Sequence[int], sizes: Sequence[int]) -> list[float]:
    """Elements of the source for one of the result, on each axis."""
    given = ctx.get("scale_factors")
    if given is None:
        names = ("scales_d", "scales_h", "scales_w")[-len(spatial) :] if len(spatial) > 1 else ("scales",)
        given = [ctx.get(name) for name in names]
    return [1 / float(s) if s else n / m for s, n, m in zip(given, spatial, sizes)]


def _centers(ctx: NodeContext, source: int, target: int, scale: float) -> Array:
    """The source's coordinate of each element of the result."""
    at = np.arange(target, dtype=np.float64)
    if ctx.get("align_corners", False):
        return at * ((source - 1) / (target - 1) if target > 1 else 0)
    return np.asarray((at + 0.5) * scale - 0.5)


@converts(*(f"aten.upsample_nearest{rank}d.{kind}" for rank in (1, 2, 3) for kind in ("default", "vec")))
def nearest(ctx: NodeContext) -> Value:
    return _nearest(ctx, 0.0)


@converts(*(f"aten._upsample_nearest_exact{rank}d.{kind}" for rank in (1, 2, 3) for kind in ("default", "vec")))
def nearest_exact(ctx: NodeContext) -> Value:
    return _nearest(ctx, 0.5)


def _input(ctx: NodeContext) -> Value:
    return ctx.value("input" if "input" in ctx.node.args else "self")


def _nearest(ctx: NodeContext, shift: float) -> Value:
    x = _input(ctx)
    spatial = x.type.shape[2:]
    sizes = _sizes(ctx, spatial)
    tables, axes = [], []
    for axis, (n, m, scale) in enumerate(zip(spatial, sizes, _scales(ctx, spatial, sizes)), start=2):
        at = np.floor((np.arange(m, dtype=np.float32) + np.float32(shift)) * np.float32(scale))
        tables.append(ctx.b.constant(np.clip(at, 0, n - 1).astype(np.int32)))
        axes.append(axis)
    return ctx.b.op("resize_nearest", [x, *tables], axes=tuple(axes))


def _table(at: Array, source: int, kernel: Callable[[Array], Array], radius: int) -> tuple[Array, Array]:
    """Positions and weights around each coordinate; positions outside are those of the edge."""
    index = np.floor(at)[:, None] + np.arange(1 - radius, radius + 1)
    return np.clip(index, 0, source - 1).astype(np.int32), kernel(index - at[:, None])


def _smooth_table(
    at: Array, source: int, scale: float, kernel: Callable[[Array], Array], radius: int
) -> tuple[Array, Array]:
    """The same with a kernel that is as wide as what one element of the result covers, and nothing from outside."""
    wide = max(scale, 1.0)
    reach = radius * wide
    center = at + 0.5
    low = np.maximum(np.floor(center - reach + 0.5), 0).astype(np.int64)
    high = np.minimum(np.floor(center + reach + 0.5), source).astype(np.int64)
    taps = max(int((high - low).max()), 1)
    index = low[:, None] + np.arange(taps)
    weight = np.where(index < high[:, None], kernel((index + 0.5 - center[:, None]) / wide), 0)
    return np.clip(index, 0, source - 1).astype(np.int32), weight / weight.sum(axis=1, keepdims=True)


def _weighted(ctx: NodeContext, kernel: Callable[[Array], Array], radius: int, smooth: bool, clamped: bool) -> Value:
    b, x = ctx.b, _input(ctx)
    wide = widen(b, x)
    spatial = x.type.shape[2:]
    sizes = _sizes(ctx, spatial)
    operands, axes = [wide], []
    for axis, (n, m, scale) in enumerate(zip(spatial, sizes, _scales(ctx, spatial, sizes)), start=2):
        if smooth and ctx.get("align_corners", False):
            scale = (n - 1) / (m - 1) if m > 1 else 0.0
        at = (np.arange(m) + 0.5) * scale - 0.5 if smooth else _centers(ctx, n, m, scale)
        at = np.clip(at, 0, None) if clamped else at
        index, weight = _smooth_table(at, n, scale, kernel, radius) if smooth else _table(at, n, kernel, radius)
        operands += [b.constant(index), b.constant(weight.astype(wide.type.dtype.numpy))]
        axes.append(axis)
    return cast(b, b.op("resize", operands, axes=tuple(axes)), x.type.dtype)


@converts(
    *(
        f"aten.upsample_{name}.{kind}"
        for name in ("linear1d", "bilinear2d", "trilinear3d")
        for kind in ("default", "vec")
    )
)
def linear(ctx: NodeContext) -> Value:
    return _weighted(ctx, linear_kernel, 1, smooth=False, clamped=True)


@converts("aten.upsample_bicubic2d.default", "aten.upsample_bicubic2d.vec")
def bicubic(ctx: NodeContext) -> Value:
    return _weighted(ctx, cubic_kernel(-0.75), 2, smooth=False, clamped=False)


@converts("aten._upsample_bilinear2d_aa.default", "aten._upsample_bilinear2d_aa.vec")
def bilinear_smooth(ctx: NodeContext) -> Value:
    return _weighted(ctx, linear_kernel, 1, smooth=True, clamped=False)


@converts("aten._upsample_bicubic2d_aa.default", "aten._upsample_bicubic2d_aa.vec")
def bicubic_smooth(ctx: NodeContext) -> Value:
    return _weighted(ctx, cubic_kernel(-0.5), 2, smooth=True, clamped=False)
