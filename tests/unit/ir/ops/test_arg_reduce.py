# SPDX-License-Identifier: Apache-2.0
"""arg_max and arg_min against numpy, with ties, infinities and nan."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize("name, find", [("arg_max", np.argmax), ("arg_min", np.argmin)])
@pytest.mark.parametrize(
    "dtype, axis", [(np.float32, 0), (np.float32, 2), (np.float16, 1), (np.int8, 1), (np.uint64, 1)]
)
def test_first_and_last_of_ties(check_op, name, find, dtype, axis):
    x = RANDOM.integers(0, 3, (3, 7, 2)).astype(dtype)
    check_op(name, [x], [find(x, axis=axis)], axis=axis, last=False)
    last = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)
    check_op(name, [x], [last], axis=axis, last=True)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_nan_wins_as_in_numpy(check_op, dtype):
    inf, nan = np.inf, np.nan
    x = np.array([[-inf, -inf, -inf], [1, nan, 2], [nan, nan, nan], [3, inf, nan]], dtype)
    check_op("arg_max", [x], [[0, 1, 0, 2]], axis=1, last=False)
    check_op("arg_max", [x], [[2, 1, 2, 2]], axis=1, last=True)
    check_op("arg_min", [-x], [[0, 1, 0, 2]], axis=1, last=False)


def test_empty_axis_is_rejected(make_op):
    with pytest.raises(OpError, match="one or more along axis 0"):
        make_op("arg_max", [np.zeros((0, 2), np.float32)], axis=0, last=False)
