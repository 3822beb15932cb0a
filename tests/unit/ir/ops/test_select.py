# SPDX-License-Identifier: Apache-2.0
"""select: values, broadcasting of all three operands, in place, broken contracts."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition
from memc.runtime.codegen.debug import run_op


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_picks_by_condition(check_op, dtype):
    condition = np.array([[True, False, True], [False, False, True]])
    a, b = np.ones((2, 3), dtype), np.zeros((2, 3), dtype)
    check_op("select", [condition, a, b], [[[1, 0, 1], [0, 0, 1]]])


def test_broadcasts_all_operands(check_op):
    condition = np.array([[True], [False]])
    a, b = np.array([1, 2, 3], np.float32), np.float32(-1)
    check_op("select", [condition, a, b], [[[1, 2, 3], [-1, -1, -1]]])
    check_op("select", [np.True_, np.float32(2), np.zeros((0, 2), np.float32)], [np.zeros((0, 2))])


def test_the_other_side_s_nan_does_not_leak(check_op):
    condition = np.array([True, False])
    check_op("select", [condition, np.array([1, np.nan], np.float32), np.array([np.nan, 2], np.float32)], [[1, 2]])


@pytest.mark.parametrize("operand", [1, 2])
def test_in_place(make_op, operand):
    condition = np.arange(40) % 3 == 0
    a, b = np.arange(40, dtype=np.float32), -np.arange(40, dtype=np.float32)
    op = make_op("select", [condition, a, b])
    assert list(definition(op).in_place(op)) == [1, 2]
    assert run_op(op, [condition, a, b], in_place=operand)[0].tolist() == [i if i % 3 == 0 else -i for i in range(40)]


def test_over_the_condition_itself(make_op):
    condition = np.array([True, False, True, False])
    a, b = np.array([5, 6, 7, 8], np.uint8), np.array([1, 2, 3, 4], np.uint8)
    op = make_op("select", [condition, a, b])
    assert list(definition(op).in_place(op)) == [0, 1, 2]
    assert run_op(op, [condition, a, b], in_place=0)[0].tolist() == [5, 2, 7, 4]


@pytest.mark.parametrize(
    "condition, a, b, message",
    [
        (np.zeros(2, np.int8), np.zeros(2, np.float32), np.zeros(2, np.float32), r"a bool condition, got i8\[2\]"),
        (
            np.zeros(2, bool),
            np.zeros(2, np.float32),
            np.zeros(2, np.float16),
            r"one element type, got f32\[2\], f16\[2\]",
        ),
        (np.zeros(3, bool), np.zeros(2, np.float32), np.zeros(2, np.float32), "do not broadcast"),
    ],
)
def test_broken_contracts(make_op, condition, a, b, message):
    with pytest.raises(OpError, match=message):
        make_op("select", [condition, a, b])
