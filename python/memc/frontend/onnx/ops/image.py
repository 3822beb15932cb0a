# SPDX-License-Identifier: Apache-2.0
"""Sampling, regions and patches of images. Resize is in resize.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Array, Attr
from memc.ir.ops.shared.casts import cast, widen

from ..context import Known, NodeContext, imports
from .conv_pool import Geometry, geometry
from .matmul import product


@imports("GridSample")
def grid_sample(ctx: NodeContext) -> Sequence[Known]:
    b, x, grid = ctx.b, ctx.value(0), ctx.value(1)
    wide = widen(b, x)
    mode = str(ctx.attr("mode", "linear" if ctx.opset >= 20 else "bilinear"))
    y = b.op(
        "grid_sample",
        [wide, cast(b, grid, wide.type.dtype)],
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=str(ctx.attr("padding_mode", "zeros")),
        align_corners=bool(ctx.attr("align_corners", 0)),
    )
    return [cast(b, y, x.type.dtype)]


def base_grid(size: Sequence[int], align_corners: bool) -> Array:
    """Normalized coordinates of every element [prod(size), axes + 1]: last axis first, then a one."""
    axes = []
    for extent in size:
        if align_corners:
            axes.append(np.linspace(-1, 1, extent) if extent > 1 else np.zeros(extent))
        else:
            axes.append((np.arange(extent) + 0.5) * 2 / max(extent, 1) - 1)
    mesh = [m.reshape(-1) for m in np.meshgrid(*axes, indexing="ij")]
    return np.stack([*mesh[::-1], np.ones_like(mesh[0])], axis=1)


@imports("AffineGrid")
def affine_grid(ctx: NodeContext) -> Sequence[Known]:
    b, theta = ctx.b, ctx.value(0)
    _, _, *spatial = ctx.ints(1)
    axes = len(spatial)
    if axes not in (2, 3) or theta.type.shape[1:] != (axes, axes + 1):
        raise ctx.unsupported(f"expected theta [N, {axes}, {axes + 1}] for size {list(ctx.ints(1))}, got {theta.type}")
    grid = base_grid(spatial, bool(ctx.attr("align_corners", 0))).astype(theta.type.dtype.numpy)
    points = product(b, b.constant(grid), theta, transpose_b=True)
    return [b.op("reshape", [points], shape=(theta.type.shape[0], *spatial, axes))]


@imports("RoiAlign")
def roi_align(ctx: NodeContext) -> Sequence[Known]:
    b, x = ctx.b, ctx.value(0)
    samples = int(ctx.attr("sampling_ratio", 0))
    if samples < 0:
        raise ctx.unsupported(f"expected a sampling_ratio from 0 on, got {samples}")
    wide = widen(b, x)
    half_pixel = ctx.opset >= 16 and ctx.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    sampling: dict[str, Attr] = {"sampling_ratio": samples} if samples else {}
    y = b.op(
        "roi_align" if samples else "roi_align_adaptive",
        [wide, cast(b, ctx.value(1), wide.type.dtype), ctx.value(2)],
        size=(int(ctx.attr("output_height", 1)), int(ctx.attr("output_width", 1))),
        **sampling,
        spatial_scale=float(ctx.attr("spatial_scale", 1.0)),
        half_pixel=half_pixel,
        mode=str(ctx.attr("mode", "avg")),
    )
    return [cast(b, y, x.type.dtype)]


@imports("DeformConv")
def deform_conv(ctx: NodeContext) -> Sequence[Known]:
    b, x, w = ctx.b, ctx.value(0), ctx.value(1)
    if x.type.rank != 4 or w.type.rank != 4:
        raise ctx.unsupported(f"expected an image [N, C, H, W], got {x.type}")
    wide = widen(b, x)
    inputs = [w, ctx.value(2)] + ([ctx.value(4)] if ctx.has(4) else [])
    y = b.op(
        "deform_conv",
        [wide, *(widen(b, v) for v in inputs)],
        group=int(ctx.attr("group", 1)),
        offset_group=int(ctx.attr("offset_group", 1)),
        **_whole(ctx, geometry(ctx, w.type.shape[2:], x.type.shape[2:])).attrs(kernel=False),
    )
    if ctx.has(3):
        bias = b.op("reshape", [widen(b, ctx.value(3))], shape=(w.type.shape[0], 1, 1))
        y = b.op("add", [y, bias])
    return [cast(b, y, x.type.dtype)]


def _whole(ctx: NodeContext, shape: Geometry) -> Geometry:
    """A window that sees all of its input. Raises UnsupportedError for negative padding: what a deformed window reads may lie
    there all the same, and columns have no place for it."""
    if shape.cropped:
        raise ctx.unsupported(f"negative pads {list(ctx.attr('pads'))}")
    return shape


@imports("Col2Im")
def col2im(ctx: NodeContext) -> Sequence[Known]:
    x, image, block = ctx.value(0), ctx.ints(1), ctx.ints(2)
    y = ctx.b.op("col2im", [x], shape=image, **_whole(ctx, geometry(ctx, block, image)).attrs(kernel=True))
    return [cast(ctx.b, y, x.type.dtype)]
