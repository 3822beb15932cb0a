# SPDX-License-Identifier: Apache-2.0
"""cumsum and cumprod against numpy, in all four directions."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(4)


@pytest.mark.parametrize("name, run, start", [("cumsum", np.cumsum, 0), ("cumprod", np.cumprod, 1)])
@pytest.mark.parametrize(
    "axis, exclusive, reverse", [(0, False, True), (1, True, False), (1, True, True), (1, False, False)]
)
def test_directions(check_op, name, run, start, axis, exclusive, reverse):
    x = RANDOM.integers(1, 5, (3, 4))
    wanted = np.flip(x, axis) if reverse else x
    wanted = run(wanted, axis=axis)
    if exclusive:
        wanted = np.insert(wanted, 0, start, axis=axis)
        wanted = np.delete(wanted, -1, axis=axis)
    wanted = np.flip(wanted, axis) if reverse else wanted
    for dtype in (np.float32, np.int64):
        check_op(name, [x.astype(dtype)], [wanted], axis=axis, exclusive=exclusive, reverse=reverse)


def test_infinity_does_not_reach_back(check_op):
    x = np.array([1, np.inf, 2], np.float32)
    check_op("cumsum", [x], [[1, np.inf, np.inf]], axis=0, exclusive=False, reverse=False)
    check_op("cumsum", [x], [[0, 1, np.inf]], axis=0, exclusive=True, reverse=False)


def test_empty(check_op):
    check_op("cumsum", [np.zeros((0,), np.float32)], [np.zeros(0)], axis=0, exclusive=True, reverse=False)


def test_contract(make_op):
    with pytest.raises(OpError, match="half precision"):
        make_op("cumsum", [np.zeros(3, np.float16)], axis=0, exclusive=False, reverse=False)
    with pytest.raises(OpError, match="exclusive"):
        make_op("cumsum", [np.zeros(3, np.float32)], axis=0, reverse=False)
