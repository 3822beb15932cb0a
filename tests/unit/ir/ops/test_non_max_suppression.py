# SPDX-License-Identifier: Apache-2.0
"""non_max_suppression against plain Python."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(7)


def area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


def overlap(a, b):
    shared = [max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])]
    if shared[2] <= shared[0] or shared[3] <= shared[1] or area(a) <= 0 or area(b) <= 0:
        return 0
    return area(shared) / (area(a) + area(b) - area(shared))


def chosen(boxes, candidates, threshold, count):
    found = []
    for box in candidates:
        if box >= 0 and len(found) < count and all(overlap(boxes[box], boxes[f]) <= threshold for f in found):
            found.append(box)
    return found + [-1] * (count - len(found))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    "batches, classes, boxes, count", [(1, 1, 7, 7), (2, 3, 40, 10), (1, 2, 300, 290), (1, 1, 5, 0)]
)
def test_choice(check_op, batches, classes, boxes, count, center):
    corners = RANDOM.uniform(0, 10, (batches, boxes, 2, 2)).astype(np.float32)
    low, high = corners.min(axis=2), corners.max(axis=2)
    given = corners.reshape(batches, boxes, 4)
    if center:
        given = np.concatenate([(low + high) / 2, high - low], axis=2)
    plain = np.concatenate([low, high], axis=2).astype(np.float64)
    order = np.argsort(RANDOM.uniform(size=(batches, classes, boxes)), axis=2)
    order[RANDOM.uniform(size=order.shape) < 0.2] = -1
    wanted = [[chosen(plain[b], order[b, c], 0.3, count) for c in range(classes)] for b in range(batches)]
    check_op("non_max_suppression", [given, order, np.float32(0.3)], [np.array(wanted)], center=center, count=count)


def test_boxes_without_area_suppress_nothing(check_op):
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0]]], np.float32)
    order = np.array([[[1, 0, 2, 3]]])
    check_op("non_max_suppression", [boxes, order, np.float32(0)], [[[[1, 0, -1, -1]]]], center=False, count=4)


def test_contract(make_op):
    boxes, order, threshold = np.zeros((2, 3, 4), np.float32), np.zeros((2, 1, 3), np.int64), np.float32(0)
    with pytest.raises(OpError, match="boxes f32"):
        make_op("non_max_suppression", [boxes[..., :3], order, threshold], center=False, count=1)
    with pytest.raises(OpError, match=r"candidates i64\[2, classes, n\]"):
        make_op("non_max_suppression", [boxes, order[:1], threshold], center=False, count=1)
    with pytest.raises(OpError, match="from 0 to 3"):
        make_op("non_max_suppression", [boxes, order, threshold], center=False, count=4)
