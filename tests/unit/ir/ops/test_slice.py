# SPDX-License-Identifier: Apache-2.0
"""slice: steps of both signs, empty results, and which slices are views."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition


@pytest.mark.parametrize(
    "start, stop, step",
    [
        (0, 5, 1),
        (1, 4, 1),
        (0, 5, 2),
        (1, 5, 3),
        (4, -1, -1),
        (4, 0, -2),
        (3, -1, -3),
        (2, 2, 1),
        (1, 3, -1),
        (5, 5, 1),
    ],
)
def test_one_axis(check_op, start, stop, step):
    x = np.arange(5, dtype=np.float32) * 10
    check_op("slice", [x], [[10 * i for i in range(start, stop, step)]], starts=(start,), stops=(stop,), steps=(step,))


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.uint8, np.bool_])
def test_several_axes(check_op, dtype):
    x = (np.arange(60).reshape(3, 4, 5) % 2).astype(dtype)
    expected = [[[x[i, j, k] for k in (4, 2, 0)] for j in (1, 2)] for i in (0, 2)]
    check_op("slice", [x], [expected], starts=(0, 1, 4), stops=(3, 3, -1), steps=(2, 1, -2))


def test_empty_operands(check_op):
    x = np.zeros((0, 3), np.float32)
    check_op("slice", [x], [np.zeros((0, 3))], starts=(-1, 2), stops=(-1, -1), steps=(-1, -1))
    check_op("slice", [x], [np.zeros((0, 1))], starts=(0, 1), stops=(0, 2), steps=(1, 1))
    check_op("slice", [np.float32(4)], [4], starts=(), stops=(), steps=())


@pytest.mark.parametrize(
    "starts, stops, steps, offset",
    [
        ((0, 0, 0), (2, 3, 4), (1, 1, 1), 0),
        ((1, 0, 0), (2, 3, 4), (1, 1, 1), 12),
        ((1, 1, 0), (2, 3, 4), (1, 1, 1), 16),
        ((1, 1, 1), (2, 2, 3), (1, 1, 1), 17),
        ((1, 2, 3), (2, 3, 4), (1, 1, 1), 23),
        ((1, 2, 3), (0, 1, 2), (-1, -1, -1), 23),
        ((0, 1, 0), (2, 2, 4), (1, 1, 1), None),
        ((0, 0, 0), (1, 3, 2), (1, 1, 1), None),
        ((0, 0, 0), (1, 1, 4), (1, 1, 2), None),
        ((0, 0, 3), (1, 1, -1), (1, 1, -1), None),
        ((0, 0, 0), (2, 1, 1), (1, 1, 1), None),
    ],
)
def test_contiguous_slices_are_views(make_op, starts, stops, steps, offset):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    op = make_op("slice", [x], starts=starts, stops=stops, steps=steps)
    assert definition(op).view(op) == (None if offset is None else 4 * offset)
    (found,) = definition(op).evaluate([x], op.attrs, [op.result.type])
    run = None if offset is None else np.arange(offset, offset + found.size)
    assert offset is None or found.reshape(-1).tolist() == run.tolist()


@pytest.mark.parametrize(
    "starts, stops, steps, message",
    [
        ((0,), (6,), (1,), r"start and stop in \[0, 5\] on axis 0 of f32\[5\] with step 1, got 0 and 6"),
        ((-1,), (3,), (1,), r"in \[0, 5\]"),
        ((5,), (0,), (-1,), r"in \[-1, 4\]"),
        ((0,), (5,), (0,), "a step other than 0 on axis 0"),
        ((0, 0), (5,), (1,), "expected 1 integers in attribute `starts`, got 2"),
    ],
)
def test_broken_contracts(make_op, starts, stops, steps, message):
    with pytest.raises(OpError, match=message):
        make_op("slice", [np.zeros(5, np.float32)], starts=starts, stops=stops, steps=steps)
