# SPDX-License-Identifier: Apache-2.0
"""sort_ranks, rank_positions and top_k: order, ties, nan."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(5)


def sorted_positions(x, axis, largest):
    """By a Python sort of each line, whose ties stay in place."""

    def line(values):
        def key(i):
            value = values[i]
            return (1, 0) if value != value else (0, value)

        if not largest:
            return np.array(sorted(range(len(values)), key=key))
        flipped = sorted(range(len(values)), key=lambda i: (-key(i)[0], -key(i)[1]))
        return np.array(flipped)

    return np.apply_along_axis(line, axis, x.astype(np.float64))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "dtype, axis, k",
    [
        (np.float32, 0, 3),
        (np.float32, 1, 6),
        (np.float32, 2, 0),
        (np.float16, 1, 1),
        (np.int64, 1, 3),
        (np.uint8, 1, 3),
    ],
)
def test_top_k(check_op, largest, dtype, axis, k):
    x = RANDOM.integers(0, 4, (3, 6, 2)).astype(dtype)
    positions = np.take(sorted_positions(x, axis, largest), range(k), axis=axis)
    values = np.take_along_axis(x, positions, axis=axis)
    check_op("top_k", [x], [values, positions], axis=axis, k=k, largest=largest)


def test_nan_is_the_greatest(check_op):
    x = np.array([1, np.nan, np.inf, -np.inf, np.nan], np.float32)
    order = [1, 4, 2, 0, 3]
    check_op("top_k", [x], [x[order], order], axis=0, k=5, largest=True)
    order = [3, 0, 2, 1, 4]
    check_op("top_k", [x], [x[order], order], axis=0, k=5, largest=False)


def test_ranks_and_positions_are_inverse(check_op):
    x = np.array([30, 10, 20, 10], np.int32)
    check_op("sort_ranks", [x], [[3, 0, 2, 1]], axis=0, descending=False)
    check_op("sort_ranks", [x], [[0, 2, 1, 3]], axis=0, descending=True)
    check_op("rank_positions", [np.array([3, 0, 2, 1])], [[1, 3, 2]], axis=0, count=3)


def test_empty(check_op):
    empty = np.zeros((2, 0), np.float32)
    check_op("top_k", [empty], [empty, empty], axis=1, k=0, largest=True)


def test_contract(make_op):
    with pytest.raises(OpError, match="`k` from 0 to 3"):
        make_op("top_k", [np.zeros(3, np.float32)], axis=0, k=4, largest=True)
    with pytest.raises(OpError, match="ranks of i64"):
        make_op("rank_positions", [np.zeros(3, np.float32)], axis=0, count=1)
