# SPDX-License-Identifier: Apache-2.0
"""copy: the same values in other bytes."""

import numpy as np
import pytest

from memc.ir.ops.shared.op_def import definition


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("shape", [(), (0, 2), (3, 4)])
def test_values(check_op, dtype, shape):
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    check_op("copy", [x], [x])


def test_has_bytes_of_its_own(make_op):
    x = np.arange(3.0)
    op = make_op("copy", [x])
    rule = definition(op)
    assert rule.view is None and rule.in_place is None
    (found,) = rule.evaluate([x], {}, [op.result.type])
    assert not np.shares_memory(found, x)
