# SPDX-License-Identifier: Apache-2.0
"""pad: all modes, on both sides, further than the operand is long."""

import numpy as np
import pytest

from memc.ir.errors import OpError


@pytest.mark.parametrize(
    "mode, expected",
    [
        ("constant", [9, 9, 1, 2, 3, 9, 9]),
        ("edge", [1, 1, 1, 2, 3, 3, 3]),
        ("reflect", [3, 2, 1, 2, 3, 2, 1]),
        ("wrap", [2, 3, 1, 2, 3, 1, 2]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
def test_modes(check_op, mode, expected, dtype):
    check_op("pad", [np.array([1, 2, 3], dtype)], [expected], low=(2,), high=(2,), value=9, mode=mode)


@pytest.mark.parametrize(
    "mode, expected",
    [
        ("edge", [1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3]),
        ("reflect", [1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2]),
        ("wrap", [3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]),
    ],
)
def test_further_than_the_operand_is_long(check_op, mode, expected):
    x = np.array([1, 2, 3], np.float32)
    check_op("pad", [x], [expected], low=(4,), high=(5,), value=0, mode=mode)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_one_element_axis(check_op, mode):
    fill = 0 if mode == "constant" else 7
    check_op("pad", [np.float32([7])], [[fill, 7, fill, fill]], low=(1,), high=(2,), value=0, mode=mode)


def test_two_axes(check_op):
    x = np.array([[1, 2], [3, 4]], np.float32)
    expected = [[0, 0, 0], [0, 1, 2], [0, 3, 4]]
    check_op("pad", [x], [expected], low=(1, 1), high=(0, 0), value=0.0, mode="constant")
    check_op("pad", [x], [[[4, 3, 4], [2, 1, 2], [4, 3, 4]]], low=(1, 1), high=(0, 0), value=0, mode="reflect")


def test_special_values(check_op):
    check_op("pad", [np.float32([1])], [[-np.inf, 1]], low=(1,), high=(0,), value=-np.inf, mode="constant")
    check_op("pad", [np.array([False])], [[True, False]], low=(1,), high=(0,), value=True, mode="constant")


def test_scalars_and_empty_tensors(check_op):
    check_op("pad", [np.float32(3)], [3], low=(), high=(), value=1.0, mode="constant")
    check_op(
        "pad", [np.zeros((0, 2), np.float32)], [np.ones((2, 2))], low=(1, 0), high=(1, 0), value=1, mode="constant"
    )
    check_op("pad", [np.zeros((0, 2), np.float32)], [np.zeros((0, 4))], low=(0, 1), high=(0, 1), value=1, mode="edge")


@pytest.mark.parametrize(
    "attrs, message",
    [
        ({"low": (-1,), "high": (0,), "value": 0, "mode": "edge"}, r"of at least 0, got \[-1\] and \[0\]"),
        ({"low": (1, 2), "high": (0,), "value": 0, "mode": "edge"}, "expected 1 integers in attribute `low`, got 2"),
        (
            {"low": (1,), "high": (0,), "value": 0, "mode": "mirror"},
            "`mode` to be one of constant, reflect, edge, wrap",
        ),
        ({"low": (1,), "high": (0,), "value": "x", "mode": "edge"}, "a number as attribute `value`"),
        ({"low": (1,), "high": (0,), "value": 0, "mode": "wrap"}, r"elements to take from on axis 0 of f32\[0\]"),
    ],
)
def test_broken_contracts(make_op, attrs, message):
    with pytest.raises(OpError, match=message):
        make_op("pad", [np.zeros(0, np.float32)], **attrs)
