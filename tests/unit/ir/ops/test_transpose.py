# SPDX-License-Identifier: Apache-2.0
"""transpose: every element at its place; a view where only axes of extent 1 move."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition


@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
def test_values(check_op, perm):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = np.empty([x.shape[p] for p in perm])
    for place in np.ndindex(x.shape):
        expected[tuple(place[p] for p in perm)] = x[place]
    check_op("transpose", [x], [expected], perm=perm)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.uint8, np.bool_])
def test_element_types(check_op, dtype):
    check_op("transpose", [np.array([[1, 0, 1], [0, 0, 1]], dtype)], [[[1, 0], [0, 0], [1, 1]]], perm=(1, 0))


def test_scalars_and_empty_tensors(check_op):
    check_op("transpose", [np.float32(3)], [3], perm=())
    check_op("transpose", [np.zeros((2, 0, 3), np.float32)], [np.zeros((3, 2, 0))], perm=(2, 0, 1))


@pytest.mark.parametrize(
    "shape, perm, offset",
    [
        ((2, 1, 3), (1, 0, 2), 0),
        ((2, 1, 3), (0, 2, 1), 0),
        ((1, 5, 1), (2, 1, 0), 0),
        ((2, 3), (0, 1), 0),
        ((2, 3), (1, 0), None),
        ((2, 1, 3), (2, 1, 0), None),
    ],
)
def test_view(make_op, shape, perm, offset):
    op = make_op("transpose", [np.zeros(shape, np.float32)], perm=perm)
    assert definition(op).view(op) == offset


@pytest.mark.parametrize("perm", [(0,), (0, 0), (0, 2), (0, -1)])
def test_broken_contracts(make_op, perm):
    with pytest.raises(OpError, match=r"`perm` to order the 2 axes of f32\[2,3\]"):
        make_op("transpose", [np.zeros((2, 3), np.float32)], perm=perm)
