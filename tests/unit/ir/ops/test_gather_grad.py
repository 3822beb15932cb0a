# SPDX-License-Identifier: Apache-2.0
"""gather_grad: values against a loop over the indices."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RNG = np.random.default_rng(9)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (0,), ()])
def test_rows_are_added_up(check_op, shape, axis, index_type):
    indices = RNG.integers(-5, 5, shape).astype(index_type)
    lead, rest = ((), (2, 6)) if axis == 0 else ((2,), (6,))
    g = RNG.standard_normal((*lead, *shape, *rest)).astype(np.float32)
    expected = np.zeros((*lead, 5, *rest))
    for place in np.ndindex(*shape):
        at = (slice(None),) * axis
        expected[(*at, int(indices[place]))] += g[(*at, *place)]
    check_op("gather_grad", [indices, g], [expected], axis=axis, extent=5)


def test_half_precision_adds_up_in_f32(check_op):
    g = np.full((4000, 2), 0.1, np.float16)
    expected = np.zeros((3, 2))
    expected[1] = 4000 * float(np.float16(0.1))
    check_op("gather_grad", [np.full(4000, 1), g], [expected], rtol=1e-4, axis=0, extent=3)


def test_contract(make_op):
    with pytest.raises(
        OpError, match=r"expected a gradient of floats with the axes of i64\[4\] from 1 on, got f32\[2,3\]"
    ):
        make_op("gather_grad", [np.zeros(4, int), np.zeros((2, 3), np.float32)], axis=1, extent=5)
