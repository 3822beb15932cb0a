# SPDX-License-Identifier: Apache-2.0
"""broadcast: repeated elements; a view where nothing is repeated."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_])
def test_values(check_op, dtype):
    x = np.array([[1], [0], [1]]).astype(dtype)
    check_op("broadcast", [x], [[[[1] * 4, [0] * 4, [1] * 4]] * 2], shape=(2, 3, 4))
    check_op("broadcast", [x[0, 0]], [[[1, 1]]], shape=(1, 2))
    check_op("broadcast", [x[0]], [np.zeros((0, 1))], shape=(0, 1))


@pytest.mark.parametrize("source, shape, offset", [((2, 3), (2, 3), 0), ((2, 3), (1, 2, 3), 0), ((1, 3), (2, 3), None)])
def test_view(make_op, source, shape, offset):
    op = make_op("broadcast", [np.zeros(source, np.float32)], shape=shape)
    assert definition(op).view(op) == offset


@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (2, -1)])
def test_broken_contracts(make_op, shape):
    with pytest.raises(OpError, match="expected"):
        make_op("broadcast", [np.zeros((2, 3), np.float32)], shape=shape)
