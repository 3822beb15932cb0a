# SPDX-License-Identifier: Apache-2.0
"""matmul and det: values against numpy, and the contract's edges."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(2)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("lead_a, lead_b", [((), ()), ((2,), ()), ((), (3,)), ((2, 1), (1, 3)), ((4,), (4,))])
def test_against_numpy(check_op, lead_a, lead_b, transpose_a, transpose_b):
    a, b = (RANDOM.standard_normal(s).astype(np.float32) for s in ((*lead_a, 3, 4), (*lead_b, 4, 5)))
    expected = a @ b
    given = [a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b]
    inputs = [np.ascontiguousarray(v) for v in given]
    check_op("matmul", inputs, [expected], rtol=1e-4, transpose_a=transpose_a, transpose_b=transpose_b)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.uint32, np.uint8])
def test_element_types(check_op, dtype):
    a, b = (RANDOM.integers(0, 5, s).astype(dtype) for s in ((3, 4), (4, 2)))
    check_op("matmul", [a, b], [a @ b])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_gives_f32(check_op, dtype):
    a, b = (RANDOM.standard_normal(s).astype(dtype) for s in ((3, 40), (40, 2)))
    check_op("matmul", [a, b], [a.astype(np.float32) @ b.astype(np.float32)], rtol=1e-4, atol=1e-5)


def test_integers_wrap(check_op):
    a = np.full((1, 2), 2**30, np.int32)
    b = np.full((2, 1), 3, np.int32)
    check_op("matmul", [a, b], [np.array([[2**30 * 6]], np.int64).astype(np.int32)])


@pytest.mark.parametrize("m, k, n", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty(check_op, m, k, n):
    check_op("matmul", [np.ones((m, k), np.float32), np.ones((k, n), np.float32)], [np.zeros((m, n))])


@pytest.mark.parametrize(
    "a, b, message",
    [
        ((3, 4), (5, 2), "equal inner extents, got 4 and 5"),
        ((4,), (4, 2), "rank 2 or more"),
        ((2, 3, 4), (3, 4, 2), "leading axes that broadcast"),
    ],
)
def test_contract(make_op, a, b, message):
    with pytest.raises(OpError, match=message):
        make_op("matmul", [np.zeros(a, np.float32), np.zeros(b, np.float32)])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_det(check_op, size):
    x = RANDOM.standard_normal((3, size, size)).astype(np.float32)
    check_op("det", [x], [np.linalg.det(x.astype(np.float64))], rtol=1e-4, atol=1e-5)


def test_det_of_large_matrices_is_refused(make_op):
    with pytest.raises(OpError, match="1 to 4 rows"):
        make_op("det", [np.zeros((5, 5), np.float32)])
