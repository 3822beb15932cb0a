# SPDX-License-Identifier: Apache-2.0
"""iota: positions in every number type."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.types import DType


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL], ids=lambda d: d.value)
def test_values(check_op, dtype):
    check_op("iota", [], [[[0, 1, 2], [0, 1, 2]]], shape=(2, 3), axis=1, dtype=dtype)
    check_op("iota", [], [[[0, 0, 0], [1, 1, 1]]], shape=(2, 3), axis=0, dtype=dtype)
    check_op("iota", [], [np.zeros((0, 3))], shape=(0, 3), axis=0, dtype=dtype)


@pytest.mark.parametrize(
    "attrs, message",
    [
        ({"shape": (2,), "axis": 1, "dtype": DType.I64}, r"`axis` in \[0, 1\)"),
        ({"shape": (), "axis": 0, "dtype": DType.I64}, r"`axis` in \[0, 0\)"),
        ({"shape": (-2,), "axis": 0, "dtype": DType.I64}, "extents of at least 0"),
        ({"shape": (2,), "axis": 0, "dtype": DType.BOOL}, "a number type, got bool"),
    ],
)
def test_broken_contracts(make_op, attrs, message):
    with pytest.raises(OpError, match=message):
        make_op("iota", [], **attrs)
