# SPDX-License-Identifier: Apache-2.0
"""non_max_suppression: boxes in the order of their scores, without those that overlap one before them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from .library.cpu_sort_scan import SUPPRESSION_CPU
from .library.cuda_sort_scan import SUPPRESSION_CUDA
from .shared.common import bool_attr, count, int_attr
from .shared.op_def import Attrs, OpDef, Routine, flat, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 3)
    boxes, candidates, threshold = operands
    if boxes.dtype is not DType.F32 or boxes.rank != 3 or boxes.shape[2] != 4:
        raise OpError(f"expected boxes f32[batches, boxes, 4], got {boxes}")
    if candidates.dtype is not DType.I64 or candidates.rank != 3 or candidates.shape[0] != boxes.shape[0]:
        raise OpError(f"expected candidates i64[{boxes.shape[0]}, classes, n], got {candidates}")
    if threshold != TensorType(DType.F32, ()):
        raise OpError(f"expected a threshold f32[], got {threshold}")
    bool_attr(attrs, "center")
    most = int_attr(attrs, "count")
    if not 0 <= most <= candidates.shape[2]:
        raise OpError(f"expected attribute `count` from 0 to {candidates.shape[2]}, got {most}")
    return [candidates.with_shape((*candidates.shape[:2], most))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    boxes, candidates, threshold = inputs
    found = np.full(results[0].shape, -1, np.int64)
    with np.errstate(all="ignore"):
        corners, areas = _corners(boxes, bool_attr(attrs, "center"))
        for batch, group in np.ndindex(found.shape[:2]):
            chosen: list[int] = []
            for box in candidates[batch, group]:
                if len(chosen) == found.shape[2]:
                    break
                if box < 0:
                    continue
                kept = np.array(chosen, np.int64)
                overlap = _overlaps(corners[batch], areas[batch], int(box), kept)
                if not (overlap > threshold).any():
                    chosen.append(int(box))
            found[batch, group, : len(chosen)] = chosen
    return [found]


def _corners(boxes: Array, center: bool) -> tuple[Array, Array]:
    """Low and high corners [batches, boxes, 2, 2], and areas."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if center:
        half = second / np.float32(2)
        low, high = first - half, first + half
    else:
        low, high = np.minimum(first, second), np.maximum(first, second)
    sides = high - low
    return np.stack([low, high], axis=-2), sides[..., 0] * sides[..., 1]


def _overlaps(corners: Array, areas: Array, box: int, others: Array) -> Array:
    """Intersection over union of a box with others; 0 where one of them has no area."""
    low = np.maximum(corners[others, 0], corners[box, 0])
    high = np.minimum(corners[others, 1], corners[box, 1])
    sides = high - low
    shared = np.where((sides > 0).all(axis=1), sides[:, 0] * sides[:, 1], np.float32(0))
    union = areas[others] + areas[box] - shared
    counts = (shared > 0) & (areas[others] > 0) & (areas[box] > 0) & (union > 0)
    found: Array = np.where(counts, shared / union, np.float32(-np.inf))
    return found


def flops(op: Op) -> int:
    """Of every candidate with half of those that are chosen."""
    return 8 * op.operands[1].type.elements * op.result.type.shape[2]


register(
    OpDef(
        name="non_max_suppression",
        doc="Of candidate boxes, one after another, those that do not overlap a chosen one too much.\n\n"
        "Operands: boxes f32[B, N, 4]; candidates i64[B, C, K], which name boxes of their batch in the order of preference\n"
        "(a negative one names none); and the intersection over union, f32[], above which two overlap too much. Boxes are\n"
        "two opposite corners, y and x each, or with the attribute `center` the middle, width and height. Attribute `count`:\n"
        "the most that are chosen. Result i64[B, C, count]: the chosen ones, then -1.",
        spec="https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html",
        infer=infer,
        evaluate=evaluate,
        gradient=flat,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Routine(),
        library=(SUPPRESSION_CPU, SUPPRESSION_CUDA),
    )
)
