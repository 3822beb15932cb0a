# SPDX-License-Identifier: Apache-2.0
"""roi_align: regions of a feature map pooled to one size by bilinear samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from . import bilinear
from .base import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .window import choice, flag, int_tuple, integer, require_count, require_numeric


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
    integer(attrs, "sampling_ratio", 1)
    flag(attrs, "half_pixel")
    if not isinstance(attrs.get("spatial_scale"), float):
        raise OpError(f"expected attribute `spatial_scale` with a float, got {attrs.get('spatial_scale')}")
    return [x.with_shape((rois.shape[0], x.shape[1], *int_tuple(attrs, "size", 2, 1)))]


def _scale(attrs: Attrs) -> float:
    value = attrs["spatial_scale"]
    assert isinstance(value, float)
    return value


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, rois, batch = inputs
    samples, size = integer(attrs, "sampling_ratio", 1), int_tuple(attrs, "size", 2, 1)
    half = flag(attrs, "half_pixel")
    box = rois * x.dtype.type(_scale(attrs)) - x.dtype.type(0.5 if half else 0)
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
    half, scale = flag(op.attrs, "half_pixel"), _scale(op.attrs)

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
        image = b.maximum(b.minimum(b.cast(inputs[2][roi], DType.I32), x.shape[0] - 1), 0)

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
        gradient=None,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)
