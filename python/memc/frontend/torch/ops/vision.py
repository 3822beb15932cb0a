# SPDX-License-Identifier: Apache-2.0
"""Sampling at positions, and torchvision's own ops."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, converts
from .views import cut, reshaped

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


@converts("aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("input")
    found = b.op(
        "grid_sample",
        [widen(b, x), widen(b, ctx.value("grid"))],
        mode=_MODES[int(ctx.get("interpolation_mode", 0))],
        padding_mode=_PADDINGS[int(ctx.get("padding_mode", 0))],
        align_corners=bool(ctx.get("align_corners", False)),
    )
    return cast(b, found, x.type.dtype)


@converts("torchvision.roi_align.default")
def roi_align(ctx: NodeContext) -> Value:
    b, x, rois = ctx.b, ctx.value("input"), ctx.value("rois")
    samples = int(ctx.get("sampling_ratio", -1))
    if samples < 1:
        raise ctx.unsupported("a sampling_ratio that depends on the boxes; give one from 1 on")
    image = cast(b, reshaped(b, cut(b, rois, 1, (0, 1, 1)), (rois.type.shape[0],)), DType.I64)
    return b.op(
        "roi_align",
        [x, cut(b, rois, 1, (1, 5, 1)), image],
        size=(int(ctx.get("pooled_height")), int(ctx.get("pooled_width"))),
        sampling_ratio=samples,
        spatial_scale=float(ctx.get("spatial_scale")),
        half_pixel=bool(ctx.get("aligned", False)),
        mode="avg",
    )


@converts("transformers.grouped_mm_fallback.default", "aten._grouped_mm.default")
def grouped_mm(ctx: NodeContext) -> Value:
    """Rows of a [S, K], in groups that end at `offs`, each times its group's matrix of b [G, K, N]."""
    b = ctx.b
    x, weights, ends = (ctx.read(item) for item in _grouped_arguments(ctx))
    rows, groups = x.type.shape[0], weights.type.shape[0]
    row = b.op("iota", [], shape=(rows, 1), axis=0, dtype=ends.type.dtype)
    before = b.op("greater_equal", [row, reshaped(b, ends, (1, groups))])
    group = b.op("reduce_sum", [cast(b, before, DType.I64)], axes=(1,), keepdims=False)
    total: Value | None = None
    for number in range(groups):
        own = b.op("equal", [reshaped(b, group, (rows, 1)), b.scalar(number, DType.I64)])
        kept = b.op("select", [own, x, b.scalar(0, x.type.dtype)])
        matrix = reshaped(b, cut(b, weights, 0, (number, number + 1, 1)), weights.type.shape[1:])
        part = b.op("matmul", [kept, matrix], transpose_a=False, transpose_b=False)
        total = part if total is None else b.op("add", [total, part])
    assert total is not None
    return cast(b, total, x.type.dtype)


def _grouped_arguments(ctx: NodeContext) -> Sequence[object]:
    """Rows, matrices and ends, by whatever names the overload gives them."""
    found = [ctx.resolved(arg) for arg in ctx.node.args.values()]
    return [item for item in found if item is not None and not isinstance(item, (bool, int, float, str))][:3]
