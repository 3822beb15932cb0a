# SPDX-License-Identifier: Apache-2.0
"""concat: values, empty operands, and where operands are contiguous parts of the result."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_values(check_op, dtype):
    a, b = np.array([[1, 0], [1, 1]], dtype), np.array([[0, 1]], dtype)
    check_op("concat", [a, b], [[[1, 0], [1, 1], [0, 1]]], axis=0)
    check_op("concat", [a, b.T], [[[1, 0, 0], [1, 1, 1]]], axis=1)


def test_many_operands_of_different_extents(check_op):
    parts = [np.arange(n, dtype=np.float32) + 100 * i for i, n in enumerate([3, 0, 1, 5, 0, 2, 7])]
    check_op("concat", parts, [[v for p in parts for v in p.tolist()]], axis=0)


def test_one_operand_and_empty_ones(check_op):
    check_op("concat", [np.arange(4.0)], [[0, 1, 2, 3]], axis=0)
    check_op("concat", [np.zeros((2, 0), np.float32)] * 2, [np.zeros((2, 0))], axis=1)
    check_op("concat", [np.zeros((0, 2), np.float32), np.zeros((0, 3), np.float32)], [np.zeros((0, 5))], axis=1)


@pytest.mark.parametrize(
    "shapes, axis, offsets",
    [
        ([(2, 3), (1, 3)], 0, [0, 24]),
        ([(1, 2, 3), (1, 5, 3)], 1, [0, 24]),
        ([(2, 3), (2, 1)], 1, [None, None]),
        ([(3,), (0,), (2,)], 0, [0, 12, 12]),
    ],
)
def test_slices(make_op, shapes, axis, offsets):
    op = make_op("concat", [np.zeros(s, np.float32) for s in shapes], axis=axis)
    assert list(definition(op).slices(op)) == offsets


@pytest.mark.parametrize(
    "arrays, axis, message",
    [
        ([], 0, "at least one operand"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], 0, r"agree on all axes but 0, got f64\[2,3\] and f64\[2,4\]"),
        ([np.zeros((2, 3)), np.zeros(2)], 0, "agree on all axes"),
        ([np.zeros(2), np.zeros(2, np.float32)], 0, "one element type"),
        ([np.zeros(2)], 1, r"attribute `axis` in \[0, 1\) for an operand of rank 1, got 1"),
    ],
)
def test_broken_contracts(make_op, arrays, axis, message):
    with pytest.raises(OpError, match=message):
        make_op("concat", arrays, axis=axis)
