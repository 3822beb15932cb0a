# SPDX-License-Identifier: Apache-2.0
"""roi_align_adaptive: `roi_align` with as many samples in each cell as it has elements, which the boxes' data decide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .roi_align import infer as infer_sampled
from .roi_align import scale_of
from .shared import bilinear
from .shared.common import clamped
from .shared.op_def import Attrs, Builder, Compute, Decompose, Expr, OpDef, Tensor, Trait, no_flops, register
from .shared.window import choice, flag, int_tuple, require_count

BEYOND, NONE = -2.0, -3.0
"""Where a sample lies that is beyond the map, so that no neighbour counts, and where there is none."""

MOST = 2.0**20
"""Samples along an axis of a cell, whatever the box: cells of more elements than that are sampled at that many places."""

MARGIN = 8
"""How many samples more than a map has elements may lie in it, and be looked at before its edge. In a cell of n elements there
are n rounded up, so that they are n / (n + 1) of an element apart or more: in a map of fewer elements than the cell lie at most
four more than it has."""


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    return infer_sampled(operands, {**attrs, "sampling_ratio": 1})


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, rois, batch = inputs
    kind, size, half = x.dtype.type, int_tuple(attrs, "size", 2, 1), flag(attrs, "half_pixel")
    box = rois * kind(scale_of(attrs)) - kind(0.5 if half else 0)
    found = np.zeros(results[0].shape, x.dtype)
    for number in range(len(rois)):
        image = x[np.clip(batch[number], 0, x.shape[0] - 1)]
        lines = [_line(box[number], axis, size[axis], half, x.shape[2 + axis]) for axis in range(2)]
        counts = [len(line) // extent for line, extent in zip(lines, size)]
        if 0 in counts:
            continue
        y, column = np.meshgrid(*lines, indexing="ij")
        parts = [image[:, r, c] * weight.astype(x.dtype) for r, c, weight in bilinear.corners(y, column, *x.shape[2:])]
        shape = (x.shape[1], size[0], counts[0], size[1], counts[1])
        if attrs["mode"] == "max":
            found[number] = np.maximum.reduce(parts).reshape(shape).max(axis=(2, 4))
        else:
            found[number] = sum(parts).reshape(shape).mean(axis=(2, 4))
    return [found]


def _line(box: Array, axis: int, size: int, half: bool, extent: int) -> Array:
    """Where the samples of a box lie along an axis; -2 beyond the map, where no neighbour counts."""
    kind = box.dtype.type
    start, span = box[1 - axis], box[3 - axis] - box[1 - axis]
    span = span if half else max(span, kind(1))
    cell = span / kind(size)
    count = int(np.clip(np.ceil(cell), 0, MOST)) if cell == cell else 0
    steps = (np.arange(count) + 0.5) / max(count, 1)
    at = start + cell * (np.arange(size)[:, None] + steps).reshape(-1).astype(box.dtype)
    placed: Array = np.where((at < -1) | (at > extent), kind(BEYOND), np.clip(at, 0, extent - 1))
    return placed


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    x, _, batch = op.operands
    lines = [_lines(b, op, axis) for axis in range(2)]
    samples = b.op("mul", [lines[0][1], lines[1][1]])
    share = b.op("div", [b.scalar(1, samples.type.dtype), b.op("max", [samples, b.scalar(1, samples.type.dtype)])])
    share = b.op(
        "select", [b.op("greater", [samples, b.scalar(0, samples.type.dtype)]), share, b.scalar(0, x.type.dtype)]
    )
    share = b.op("reshape", [share], shape=(share.type.elements,))
    return [b.op("roi_align_lines", [x, batch, lines[0][0], lines[1][0], share], mode=op.attrs["mode"])]


def _lines(b: IRBuilder, op: Op, axis: int) -> tuple[Value, Value]:
    """Where the samples of each cell lie along an axis, [boxes, cells, samples], and their number in a cell, [boxes, 1, 1]."""
    rois, size = op.operands[1], int_tuple(op.attrs, "size", 2, 1)[axis]
    half, extent, dtype = flag(op.attrs, "half_pixel"), op.operands[0].type.shape[2 + axis], rois.type.dtype
    boxes = rois.type.shape[0]

    def number(value: float) -> Value:
        return b.scalar(value, dtype)

    def edge(column: int) -> Value:
        part = b.op("slice", [rois], starts=(0, column), stops=(boxes, column + 1), steps=(1, 1))
        part = b.op("mul", [b.op("reshape", [part], shape=(boxes, 1, 1)), number(scale_of(op.attrs))])
        return b.op("sub", [part, number(0.5)]) if half else part

    start = edge(1 - axis)
    span = b.op("sub", [edge(3 - axis), start])
    cell = b.op("div", [span if half else b.op("max", [span, number(1)]), number(size)])
    count = b.op("clip", [b.op("ceil", [cell])], min=0.0, max=MOST)
    begin = b.op("add", [start, b.op("mul", [cell, b.constant(np.arange(size, dtype=dtype.numpy).reshape(1, -1, 1))])])
    # Samples that lie far before the map are left out, but for some, which stand for all.
    before = b.op("div", [b.op("mul", [b.op("sub", [number(-1), begin]), count]), cell])
    before = b.op("clip", [b.op("sub", [b.op("floor", [before]), number(2)])], min=0.0, max=MOST)
    before = b.op("max", [b.op("min", [before, b.op("sub", [count, number(1)])]), number(0)])
    turns = b.constant(np.arange(extent + MARGIN, dtype=dtype.numpy).reshape(1, 1, -1))
    which = b.op("add", [before, turns])
    step = b.op("mul", [cell, b.op("div", [b.op("add", [which, number(0.5)]), count])])
    at = b.op("add", [begin, step])
    near = b.op("logical_and", [b.op("greater_equal", [at, number(-1)]), b.op("less_equal", [at, number(extent)])])
    inner = b.op("clip", [at], min=0.0, max=float(extent - 1))
    placed = b.op("select", [near, inner, number(BEYOND)])
    return b.op("select", [b.op("less", [which, count]), placed, number(NONE)]), count


def infer_lines(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 5)
    x, batch, rows, columns, share = operands
    choice(attrs, "mode", ("avg", "max"))
    boxes = batch.shape
    fits = x.rank == 4 and len(boxes) == 1 and rows.rank == columns.rank == 3 and share.shape == boxes
    if not fits or (rows.shape[:1], columns.shape[:1]) != (boxes, boxes) or 0 in x.shape:
        raise OpError(
            f"expected x [N, C, H, W], images [R], rows, columns [R, cells, samples] and shares [R], got {operands}"
        )
    if not batch.dtype.is_integer or {v.dtype for v in (rows, columns, share)} != {x.dtype}:
        raise OpError(f"expected integer images, and floats of one type, got {operands}")
    return [x.with_shape((*boxes, x.shape[1], rows.shape[1], columns.shape[1]))]


def evaluate_lines(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, batch, rows, columns, share = inputs
    found = np.zeros(results[0].shape, x.dtype)
    for number in np.flatnonzero(share):
        image = x[np.clip(batch[number], 0, x.shape[0] - 1)]
        y, column = rows[number][:, :, None, None], columns[number][None, None]
        there = (y != NONE) & (column != NONE)
        y, column = np.broadcast_arrays(y, column)
        parts = [image[:, r, c] * weight.astype(x.dtype) for r, c, weight in bilinear.corners(y, column, *x.shape[2:])]
        if attrs["mode"] == "max":
            found[number] = np.where(there, np.maximum.reduce(parts), -np.inf).max(axis=(2, 4))
        else:
            found[number] = (np.where(there, sum(parts), 0) * share[number]).sum(axis=(2, 4))
    return [found]


def lower_lines(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, dtype = op.operands[0].type, op.operands[0].type.dtype
    image_of, rows, columns, share = inputs[1:]
    is_max = op.attrs["mode"] == "max"
    zero = b.const(0, dtype)

    def body(roi: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        image = clamped(b, b.cast(image_of[roi], DType.I32), x.shape[0])

        def terms(sy: Expr, sx: Expr) -> list[Expr]:
            def read(r: Expr, k: Expr) -> Expr:
                return inputs[0][image, c, r, k]

            return bilinear.terms(b, read, rows[roi, i, sy], columns[roi, j, sx], x.shape[2], x.shape[3], dtype)

        def taken(sy: Expr, sx: Expr, value: Expr, otherwise: Expr) -> Expr:
            inner = b.select(columns[roi, j, sx] > NONE + 0.5, value, otherwise)
            return b.select(rows[roi, i, sy] > NONE + 0.5, inner, otherwise)

        def mean(sy: Expr, sx: Expr) -> Expr:
            first, *rest = terms(sy, sx)
            for term in rest:
                first = first + term
            return taken(sy, sx, first * share[roi], zero)

        def largest(sy: Expr, sx: Expr, neighbour: Expr) -> Expr:
            *rest, chosen = terms(sy, sx)
            for number, term in enumerate(rest):
                chosen = b.select(b.equal(neighbour, number), term, chosen)
            chosen = taken(sy, sx, chosen, b.const(float("-inf"), dtype))
            return b.select(share[roi] > 0.0, chosen, zero)

        loops = [op.operands[2].type.shape[2], op.operands[3].type.shape[2]]
        return b.reduce("max", [*loops, 4], largest) if is_max else b.reduce("sum", loops, mean)

    return [b.compute(op.result.type, body)]


register(
    OpDef(
        name="roi_align_adaptive",
        doc="Boxes of a feature map, each pooled to one size from as many bilinear samples as its cells have elements.\n\n"
        "As `roi_align`, without `sampling_ratio`: along each axis a cell has as many samples as it is wide in elements\n"
        "of the map, rounded up. Boxes without extent give zeros.",
        spec="https://onnx.ai/onnx/operators/onnx__RoiAlign.html",
        infer=infer,
        evaluate=evaluate,
        gradient=None,
        in_place=None,
        view=None,
        slices=None,
        flops=no_flops,
        lower=Decompose(decompose),
        library=(),
    )
)

register(
    OpDef(
        name="roi_align_lines",
        doc="What `roi_align_adaptive` expands into: bilinear samples on the crossings of rows and columns, pooled by cells.\n\n"
        "Operands x [N, C, H, W], the image of each box [R] (integer), rows and columns [R, cells, samples], -3 for no\n"
        "sample, and what a sample counts in a mean, [R], 0 for a box without any. Attribute `mode`: avg or max.",
        spec=None,
        infer=infer_lines,
        evaluate=evaluate_lines,
        gradient=None,
        in_place=None,
        view=None,
        slices=None,
        flops=lambda op: 32 * op.result.type.elements,
        lower=Compute(lower_lines),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)
