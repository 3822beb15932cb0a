# SPDX-License-Identifier: Apache-2.0
"""roi_align: regions of a feature map pooled to one size by bilinear samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared import bilinear
from .shared.common import clamped
from .shared.derivatives import keep_where, scaled, within
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.sampling_gradient import (
    Tap,
    bilinear_steps,
    combine,
    image_of,
    position_gradients,
    rows_gradient,
    rows_of,
    weighted,
)
from .shared.window import choice, flag, int_tuple, integer, require_count, require_numeric

MAX_SAMPLES = 1024
"""Samples along an axis of a bin."""


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 3)
    require_numeric(operands[:2])
    x, rois, batch = operands
    if x.dtype not in (DType.F32, DType.F64):
        raise OpError(f"expected x and rois of f32 or f64, got {x} and {rois}")
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1] or 0 in x.shape:
        raise OpError(f"expected x [N, C, H, W], rois [R, 4] and batch indices [R], got {x}, {rois} and {batch}")
    if not batch.dtype.is_integer:
        raise OpError(f"expected integer batch indices, got {batch}")
    choice(attrs, "mode", ("avg", "max"))
    if integer(attrs, "sampling_ratio", 1) > MAX_SAMPLES:
        raise OpError(f"expected attribute `sampling_ratio` from 1 to {MAX_SAMPLES}, got {attrs['sampling_ratio']}")
    flag(attrs, "half_pixel")
    if not isinstance(attrs.get("spatial_scale"), float):
        raise OpError(f"expected attribute `spatial_scale` with a float, got {attrs.get('spatial_scale')}")
    return [x.with_shape((rois.shape[0], x.shape[1], *int_tuple(attrs, "size", 2, 1)))]


def scale_of(attrs: Attrs) -> float:
    """Box units to elements of the map."""
    value = attrs["spatial_scale"]
    assert isinstance(value, float)
    return value


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, rois, batch = inputs
    samples, size = integer(attrs, "sampling_ratio", 1), int_tuple(attrs, "size", 2, 1)
    half = flag(attrs, "half_pixel")
    box = rois * x.dtype.type(scale_of(attrs)) - x.dtype.type(0.5 if half else 0)
    coordinates = []
    for axis in range(2):  # rows, then columns; a box is x1, y1, x2, y2
        start, end = box[:, 1 - axis], box[:, 3 - axis]
        span = end - start if half else np.maximum(end - start, 1)
        steps = (np.arange(size[axis] * samples) + 0.5) / samples
        at = start[:, None] + (span / size[axis])[:, None] * steps.astype(x.dtype)
        extent = x.shape[2 + axis]
        inner = np.clip(at, 0, extent - 1)
        coordinates.append(np.where((at < -1) | (at > extent), -2, inner))  # beyond the map: no neighbour counts
    y, column = coordinates[0][:, :, None], coordinates[1][:, None, :]
    y, column = np.broadcast_arrays(y, column)
    image = x[np.clip(batch, 0, x.shape[0] - 1)]
    lead = np.arange(rois.shape[0])[:, None, None]
    parts = []
    for r, c, weight in bilinear.corners(y, column, *x.shape[2:]):
        value = np.moveaxis(image, 1, -1)[lead, r, c]
        parts.append(value * weight[..., None].astype(x.dtype))
    shape = (rois.shape[0], size[0], samples, size[1], samples, x.shape[1])
    if attrs["mode"] == "max":
        pooled = np.maximum.reduce(parts).reshape(shape).max(axis=(2, 4))
    else:
        pooled = sum(parts).reshape(shape).mean(axis=(2, 4))
    return [np.ascontiguousarray(np.moveaxis(pooled, -1, 1)).astype(x.dtype, copy=False)]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.operands[0].type
    dtype = x.dtype
    samples, size = integer(op.attrs, "sampling_ratio", 1), int_tuple(op.attrs, "size", 2, 1)
    half, scale = flag(op.attrs, "half_pixel"), scale_of(op.attrs)

    def coordinate(axis: int, roi: Expr, sample: Expr) -> Expr:
        shift = 0.5 if half else 0.0
        start = inputs[1][roi, 1 - axis] * scale - shift
        span = inputs[1][roi, 3 - axis] * scale - shift - start
        if not half:
            span = b.select(span < 1.0, b.const(1, dtype), span)
        step = (b.cast(sample, dtype) + 0.5) * (1.0 / samples)
        at = start + span * (1.0 / size[axis]) * step
        extent = x.shape[2 + axis]
        inner = b.select(at > 0.0, at, b.const(0, dtype))
        inner = b.select(inner < extent - 1.0, inner, b.const(extent - 1, dtype))
        return b.select(b.logical_or(at < -1.0, at > float(extent)), b.const(-2, dtype), inner)

    # Stages of their own, so that a position is worked out once however often it is used.
    rois = op.operands[1].type.shape[0]
    rows, columns = (
        b.compute(TensorType(dtype, (rois, size[axis] * samples)), partial(coordinate, axis)) for axis in range(2)
    )

    def body(roi: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        image = clamped(b, b.cast(inputs[2][roi], DType.I32), x.shape[0])

        def parts(sy: Expr, sx: Expr) -> list[Expr]:
            y, column = rows[roi, i * samples + sy], columns[roi, j * samples + sx]
            return bilinear.terms(b, lambda r, k: inputs[0][image, c, r, k], y, column, x.shape[2], x.shape[3], dtype)

        def mean(sy: Expr, sx: Expr) -> Expr:
            first, *rest = parts(sy, sx)
            for part in rest:
                first = first + part
            return first * (1.0 / (samples * samples))

        def largest(sy: Expr, sx: Expr, neighbour: Expr) -> Expr:
            *rest, chosen = parts(sy, sx)
            for number, part in enumerate(rest):
                chosen = b.select(b.equal(neighbour, number), part, chosen)
            return chosen

        if op.attrs["mode"] == "max":
            return b.reduce("max", [samples, samples, 4], largest)
        return b.reduce("sum", [samples, samples], mean)

    return [b.compute(op.result.type, body)]


def flops(op: Op) -> int:
    return 8 * op.result.type.elements * integer(op.attrs, "sampling_ratio", 1) ** 2


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x, the boxes and their images. A sample held at the border is flat in its box."""
    (g,) = grads
    x, rois, batch = op.operands
    if g is None or g.type.elements == 0:
        return [None, None, None]
    samples, size = integer(op.attrs, "sampling_ratio", 1), int_tuple(op.attrs, "size", 2, 1)
    boxes, channels = rois.type.shape[0], x.type.shape[1]
    lead = (boxes, size[0] * samples, size[1] * samples)
    lines = [_sample_lines(b, op, axis) for axis in range(2)]
    positions = [_over_samples(b, line.at, axis, lead) for axis, line in enumerate(lines)]
    image = b.op("reshape", [b.op("cast", [batch], to=DType.I64)], shape=(boxes, 1, 1))
    image = b.op("broadcast", [b.op("clip", [image], min=0, max=x.type.shape[0] - 1)], shape=lead)
    steps = [bilinear_steps(b, at, extent) for at, extent in zip(positions, x.type.shape[2:])]
    taps = combine(b, image, steps, x.type.shape[2:])
    rows = rows_of(b, x, 1)
    # The gradient in each sample, [boxes, rows, columns, channels].
    flowing = b.op("transpose", [g], perm=(0, 2, 3, 1))
    cells = b.op("reshape", [flowing], shape=(boxes, size[0], 1, size[1], 1, channels))
    spread = b.op("broadcast", [cells], shape=(boxes, size[0], samples, size[1], samples, channels))
    spread = b.op("reshape", [spread], shape=(*lead, channels))
    if op.attrs["mode"] == "avg":
        spread = scaled(b, spread, 1 / samples**2)
        of_rows = rows_gradient(b, spread, taps, rows.type.shape[0])
        along = position_gradients(b, spread, rows, taps)
    else:
        of_rows, *along = _largest(b, spread, rows, taps, (boxes, size[0], samples, size[1], samples, channels))
    of_box = [_box_gradient(b, line, of, axis) for axis, (line, of) in enumerate(zip(lines, along)) if of is not None]
    (start_y, end_y), (start_x, end_x) = of_box
    of_rois = b.op("concat", [start_x, start_y, end_x, end_y], axis=1)
    return [image_of(b, of_rows, x.type.shape, 1), of_rois, None]


@dataclass(frozen=True)
class _Lines:
    """Where the samples of each box lie along an axis, [boxes, samples], and what that depends on."""

    at: Value
    by_start: Value
    """The derivative in the box's start."""
    by_end: Value


def _sample_lines(b: IRBuilder, op: Op, axis: int) -> _Lines:
    rois, dtype = op.operands[1], op.operands[1].type.dtype
    samples, size = integer(op.attrs, "sampling_ratio", 1), int_tuple(op.attrs, "size", 2, 1)[axis]
    extent, scale, half = op.operands[0].type.shape[2 + axis], scale_of(op.attrs), flag(op.attrs, "half_pixel")
    boxes = rois.type.shape[0]

    def edge(column: int) -> Value:
        part = b.op("slice", [rois], starts=(0, column), stops=(boxes, column + 1), steps=(1, 1))
        return b.op("sub", [scaled(b, part, scale), b.scalar(0.5 if half else 0.0, dtype)])

    start, end = edge(1 - axis), edge(3 - axis)
    span = b.op("sub", [end, start])
    steps = ((np.arange(size * samples) + 0.5) / samples / size).astype(dtype.numpy)
    share = b.constant(steps.reshape(1, -1))
    by_end = b.op("broadcast", [scaled(b, share, scale)], shape=(boxes, size * samples))
    if not half:
        # A span below one is taken as one, whatever the end.
        long = b.op("greater_equal", [span, b.scalar(1, dtype)])
        span = b.op("max", [span, b.scalar(1, dtype)])
        by_end = keep_where(b, long, by_end)
    at = b.op("add", [start, b.op("mul", [span, share])])
    inner = b.op("clip", [at], min=0.0, max=float(extent - 1))
    free = within(b, at, 0.0, float(extent - 1))
    by_end = keep_where(b, free, by_end)
    whole = b.op("broadcast", [b.scalar(scale, dtype)], shape=at.type.shape)
    by_start = b.op("sub", [keep_where(b, free, whole), by_end])
    near = within(b, at, -1.0, float(extent))
    return _Lines(b.op("select", [near, inner, b.scalar(-2, dtype)]), by_start, by_end)


def _over_samples(b: IRBuilder, line: Value, axis: int, lead: tuple[int, ...]) -> Value:
    """Positions along an axis, repeated along the other one."""
    shape = (lead[0], lead[1], 1) if axis == 0 else (lead[0], 1, lead[2])
    return b.op("broadcast", [b.op("reshape", [line], shape=shape)], shape=lead)


def _box_gradient(b: IRBuilder, line: _Lines, along: Value, axis: int) -> tuple[Value, Value]:
    """The gradients in start and end of the boxes [boxes, 1], from those in the samples' positions."""
    whole = b.op("reduce_sum", [along], axes=(2 - axis,), keepdims=False)
    start, end = (
        b.op("reduce_sum", [b.op("mul", [whole, rate])], axes=(1,), keepdims=True)
        for rate in (line.by_start, line.by_end)
    )
    return start, end


def _largest(
    b: IRBuilder, g: Value, rows: Value, taps: Sequence[Tap], cells: tuple[int, ...]
) -> tuple[Value, Value | None, Value | None]:
    """Gradients in rows and positions where the largest weighted neighbour of all samples of a cell stands for it."""
    boxes, height, samples, width, _, channels = cells
    parts = [weighted(b, b.op("gather", [rows, tap.row], axis=0), tap.weight) for tap in taps]
    stacked = b.op("concat", [b.op("reshape", [p], shape=(1, *cells)) for p in parts], axis=0)
    by_cell = b.op("transpose", [stacked], perm=(1, 2, 4, 6, 0, 3, 5))
    count = len(taps) * samples * samples
    found = b.op("reshape", [by_cell], shape=(boxes, height, width, channels, count))
    best = b.op("arg_max", [found], axis=4, last=False)
    numbers = b.op("iota", [], shape=(count,), axis=0, dtype=DType.I64)
    wins = b.op("equal", [b.op("reshape", [best], shape=(boxes, height, width, channels, 1)), numbers])
    wins = b.op("reshape", [wins], shape=(boxes, height, width, channels, len(taps), samples, samples))
    wins = b.op("transpose", [wins], perm=(4, 0, 1, 5, 2, 6, 3))
    total: Value | None = None
    along: list[Value | None] = [None, None]
    for number, tap in enumerate(taps):
        starts, stops = (number, *[0] * 6), (number + 1, *wins.type.shape[1:])
        mine = b.op("slice", [wins], starts=starts, stops=stops, steps=(1,) * 7)
        chosen = keep_where(b, b.op("reshape", [mine], shape=g.type.shape), g)
        part = rows_gradient(b, chosen, [tap], rows.type.shape[0])
        total = part if total is None else b.op("add", [total, part])
        for axis, of in enumerate(position_gradients(b, chosen, rows, [tap])):
            before = along[axis]
            along[axis] = of if before is None or of is None else b.op("add", [before, of])
    assert total is not None
    return total, along[0], along[1]


register(
    OpDef(
        name="roi_align",
        doc="Boxes of a feature map, each pooled to one size from bilinear samples.\n\n"
        "Operands: x [N, C, H, W] and rois [R, 4] (x1, y1, x2, y2), both f32 or f64, and the image of each box [R]\n"
        "(integer). Attributes: `size` (rows, columns of the result); `sampling_ratio`: samples per cell and axis, at\n"
        "least 1; `spatial_scale`: box units to map elements; `half_pixel`: shift boxes by half an element; `mode`:\n"
        "avg, or max over the weighted neighbours of all samples. Result [R, C, rows, columns].",
        spec="https://onnx.ai/onnx/operators/onnx__RoiAlign.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)
