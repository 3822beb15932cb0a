# SPDX-License-Identifier: Apache-2.0
"""reshape: row-major order is kept; always a view."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.bool_])
@pytest.mark.parametrize(
    "source, target",
    [((2, 3, 4), (6, 4)), ((2, 3, 4), (24,)), ((1,), ()), ((), (1, 1)), ((0, 3), (3, 0, 2)), ((6,), (3, 2))],
)
def test_values(check_op, source, target, dtype):
    x = (np.arange(int(np.prod(source))) % 100).astype(dtype)
    check_op("reshape", [x.reshape(source)], [x.reshape(target)], shape=target)


def test_is_a_view_at_the_start(make_op):
    op = make_op("reshape", [np.zeros((2, 3), np.float32)], shape=(3, 2))
    assert definition(op).view(op) == 0


def test_wrong_element_count(make_op):
    with pytest.raises(OpError, match=r"with 6 elements like f32\[2,3\], got \[4, 2\]"):
        make_op("reshape", [np.zeros((2, 3), np.float32)], shape=(4, 2))


@pytest.mark.parametrize("shape", [(-1, 6), (-2, -3), 6, None])
def test_malformed_shapes(make_op, shape):
    with pytest.raises(OpError, match="attribute `shape`"):
        make_op("reshape", [np.zeros((2, 3), np.float32)], shape=shape)
