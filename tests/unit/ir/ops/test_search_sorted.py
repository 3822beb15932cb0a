# SPDX-License-Identifier: Apache-2.0
"""search_sorted against numpy."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("extent, count", [(1, 1), (2, 3), (7, 20), (64, 65), (1000, 300)])
def test_places(check_op, extent, count):
    ordered = np.sort(RANDOM.integers(0, extent, extent))
    values = RANDOM.integers(-2, extent + 2, count)
    check_op("search_sorted", [ordered, values], [[(ordered <= v).sum() for v in values]])


def test_nothing_to_search_in(check_op):
    check_op("search_sorted", [np.zeros(0, np.int64), np.arange(3)], [[0, 0, 0]])
    check_op("search_sorted", [np.arange(3), np.zeros(0, np.int64)], [np.zeros(0)])


def test_contract(make_op):
    with pytest.raises(OpError, match="two vectors of i64"):
        make_op("search_sorted", [np.zeros(3, np.int32), np.zeros(3, np.int64)])
