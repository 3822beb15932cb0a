# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample: sizes and coordinates are known at import, so they become index and weight tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memc.frontend.resize_kernels import cubic_kernel, linear_kernel
from memc.ir.core import Array, Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import Known, NodeContext, imports


@dataclass(frozen=True)
class AxisPlan:
    """How one axis is resized."""

    axis: int
    source: int
    target: int
    scale: float
    roi: tuple[float, float]


@dataclass(frozen=True)
class Options:
    """A Resize node's attributes with their defaults."""

    mode: str
    nearest: str
    coordinates: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float


def positions(plan: AxisPlan, coordinates: str, real: type[np.floating[Any]] = np.float64) -> Array:
    """The source coordinate of each result element [target], computed in `real`."""
    at = np.arange(plan.target, dtype=real)
    scale, size, half = real(plan.scale), real(plan.source), real(0.5)
    length = scale * size
    if coordinates == "align_corners":
        return at * 0 if length == 1 else at * (size - 1) / (length - 1)
    if coordinates == "asymmetric":
        return np.asarray(at / scale)
    if coordinates == "tf_crop_and_resize":
        start, end = (real(edge) for edge in plan.roi)
        if length == 1:
            return np.asarray(at * 0 + half * (start + end) * (size - 1))
        return np.asarray(at * (end - start) * (size - 1) / (length - 1) + start * (size - 1))
    if coordinates == "pytorch_half_pixel" and length == 1:
        return at * 0
    found = (at + half) / scale - half
    if coordinates == "half_pixel_symmetric":
        found = found + size * half * (1 - plan.target / length)
    return np.asarray(found, dtype=real)


def nearest_index(at: Array, size: int, rule: str) -> Array:
    """The element each coordinate takes, i32."""
    rules: dict[str, Callable[[Array], Array]] = {
        "round_prefer_floor": lambda x: np.ceil(x - x.dtype.type(0.5)),
        "round_prefer_ceil": lambda x: np.floor(x + x.dtype.type(0.5)),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return np.clip(rules[rule](at), 0, size - 1).astype(np.int32)


def weight_tables(at: Array, plan: AxisPlan, options: Options) -> tuple[Array, Array]:
    """Index [target, taps] (i32) and weight [target, taps] (f64) of each result element."""
    radius = 2 if options.mode == "cubic" else 1
    kernel = cubic_kernel(options.cubic_a) if options.mode == "cubic" else linear_kernel
    # Downsampling with antialiasing stretches the kernel over as many elements as one result element covers.
    scale = min(plan.scale, 1.0) if options.antialias else 1.0
    start = int(np.floor(-radius / scale)) + 1
    floor = np.floor(at)
    index = floor[:, None] + np.arange(start, 2 - start)
    weight = kernel((index - at[:, None]) * scale)
    if options.exclude_outside:
        weight = np.where((index < 0) | (index >= plan.source), 0, weight)
    if options.antialias or options.exclude_outside:
        total = weight.sum(axis=1, keepdims=True)
        weight = weight / np.where(total == 0, 1, total)
    used = (weight != 0).any(axis=0) if weight.size else np.ones(index.shape[1], dtype=bool)
    index, weight = index[:, used], weight[:, used]
    return np.clip(index, 0, plan.source - 1).astype(np.int32), weight


def resample(ctx: NodeContext, x: Value, plans: Sequence[AxisPlan], options: Options) -> Value:
    """`x` resized along the planned axes."""
    b = ctx.b
    crop = options.coordinates == "tf_crop_and_resize"
    active = [
        p for p in plans if p.target != p.source or not np.isclose(p.scale, 1.0) or (crop and p.roi != (0.0, 1.0))
    ]
    if not active:
        return x
    if any(p.source == 0 for p in active):
        raise ctx.unsupported(f"resizing the empty tensor {x.type}")
    axes = tuple(p.axis for p in active)
    # Nearest jumps where rounding errors decide; scales and boxes are f32, and other tools stay in f32.
    real = np.float32 if options.mode == "nearest" else np.float64
    coordinates = [positions(p, options.coordinates, real) for p in active]
    dtype = x.type.dtype
    if options.mode == "nearest":
        tables = [b.constant(nearest_index(at, p.source, options.nearest)) for at, p in zip(coordinates, active)]
        y = b.op("resize_nearest", [x, *tables], axes=axes)
    else:
        # f32 holds neither all integers of 32 bits nor, of smaller ones, which sums lie halfway between two.
        wide = widen(b, x) if dtype.is_float else cast(b, x, DType.F64)
        operands = [wide]
        for at, plan in zip(coordinates, active):
            index, weight = weight_tables(at, plan, options)
            operands += [b.constant(index), b.constant(weight.astype(wide.type.dtype.numpy))]
        y = b.op("resize", operands, axes=axes)
        if not dtype.is_float:
            y = _saturated(ctx, b.op("round", [y]), dtype)
        y = cast(b, y, dtype)
    return _extrapolate(ctx, y, active, coordinates, options.extrapolation) if crop else y


def _saturated(ctx: NodeContext, x: Value, dtype: DType) -> Value:
    """`x` (f64) within what an integer type holds."""
    info = np.iinfo(dtype.numpy)
    high = float(info.max) if int(float(info.max)) <= info.max else float(np.nextafter(float(info.max), 0))
    return ctx.b.op("clip", [x], min=float(info.min), max=high)


def _extrapolate(
    ctx: NodeContext, y: Value, plans: Sequence[AxisPlan], coordinates: Sequence[Array], value: float
) -> Value:
    """`value` wherever a coordinate lies outside the source."""
    outside = np.zeros((1,) * y.type.rank, dtype=bool)
    for plan, at in zip(plans, coordinates):
        shape = [1] * y.type.rank
        shape[plan.axis] = plan.target
        outside = outside | ((at < 0) | (at > plan.source - 1)).reshape(shape)
    if not outside.any():
        return y
    b = ctx.b
    return b.op("select", [b.constant(outside), b.scalar(value, y.type.dtype), y])


def _plans(
    ctx: NodeContext, axes: Sequence[int], roi: Array | None, scales: Array | None, sizes: Array | None
) -> list[AxisPlan]:
    x = ctx.type(0)
    count = len(axes)
    source = [x.shape[a] for a in axes]
    given = scales if scales is not None else sizes
    if given is None or len(given) != count:
        raise ctx.unsupported(f"expected {count} scales or sizes, got {None if given is None else list(given)}")
    if scales is not None:
        factors = [float(s) for s in scales]
        target = [int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(source, factors)]
        if any(not s > 0 for s in factors):
            raise ctx.unsupported(f"expected positive scales, got {factors}")
    else:
        assert sizes is not None
        target = [int(s) for s in sizes]
        factors = [t / n if n else 1.0 for t, n in zip(target, source)]
        policy = ctx.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors)
            factors = [factor] * count
            target = [int(factor * n + 0.5) for n in source]
    starts = [(float(roi[i]), float(roi[count + i])) if roi is not None else (0.0, 1.0) for i in range(count)]
    return [AxisPlan(*p) for p in zip(axes, source, target, factors, starts)]


@imports("Resize")
def resize(ctx: NodeContext) -> Sequence[Known]:
    rank = ctx.type(0).rank
    if ctx.opset < 11:
        return [_simple(ctx, ctx.const(1))]
    axes = [int(a) + rank if a < 0 else int(a) for a in ctx.attr("axes", tuple(range(rank)))]
    options = Options(
        mode=str(ctx.attr("mode", "nearest")),
        nearest=str(ctx.attr("nearest_mode", "round_prefer_floor")),
        coordinates=str(ctx.attr("coordinate_transformation_mode", "half_pixel")),
        cubic_a=float(ctx.attr("cubic_coeff_a", -0.75)),
        exclude_outside=bool(ctx.attr("exclude_outside", 0)),
        antialias=bool(ctx.attr("antialias", 0)),
        extrapolation=float(ctx.attr("extrapolation_value", 0.0)),
    )
    if options.coordinates == "tf_half_pixel_for_nn":
        raise ctx.unsupported("coordinate_transformation_mode tf_half_pixel_for_nn")
    roi = None
    if options.coordinates == "tf_crop_and_resize":
        roi = ctx.const(1).reshape(-1)
    scales = ctx.const(2).reshape(-1) if ctx.has(2) and ctx.type(2).elements else None
    sizes = ctx.const(3).reshape(-1) if scales is None and ctx.has(3) else None
    return [resample(ctx, ctx.value(0), _plans(ctx, axes, roi, scales, sizes), options)]


def _simple(ctx: NodeContext, scales: Array) -> Value:
    """Upsample, and Resize before opset 11: asymmetric coordinates; nearest rounds down, or up where it shrinks."""
    mode = {"bilinear": "linear"}.get(str(ctx.attr("mode", "nearest")), str(ctx.attr("mode", "nearest")))
    plans = _plans(ctx, range(ctx.type(0).rank), None, scales.reshape(-1), None)
    x = ctx.value(0)
    groups = [(plans, "floor")]
    if mode == "nearest":
        groups = [([p for p in plans if p.scale >= 1], "floor"), ([p for p in plans if p.scale < 1], "ceil")]
    for group, rule in groups:
        x = resample(ctx, x, group, Options(mode, rule, "asymmetric", -0.75, False, False, 0.0))
    return x


@imports("Upsample")
def upsample(ctx: NodeContext) -> Sequence[Known]:
    if ctx.opset >= 9:
        return [_simple(ctx, ctx.const(1))]
    scales = ctx.attr("scales")
    if scales is None:
        raise ctx.unsupported("attribute scales is missing")
    return [_simple(ctx, np.asarray(scales, dtype=np.float32))]
