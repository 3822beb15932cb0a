# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax: values, extremes, empty shapes."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(2)


def exact(x, axis):
    x = x.astype(np.float64)
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype, rtol", [(np.float32, 1e-5), (np.float64, 1e-12), (np.float16, 1e-3)])
def test_against_f64(check_op, axis, dtype, rtol):
    x = (3 * RANDOM.standard_normal((2, 3, 5))).astype(dtype)
    check_op("softmax", [x], [exact(x, axis)], rtol=rtol, atol=1e-7 if dtype != np.float16 else 1e-3, axis=axis)
    check_op("log_softmax", [x], [np.log(exact(x, axis))], rtol=rtol, atol=1e-6 if rtol < 1e-3 else 4e-3, axis=axis)


def test_large_and_infinite_values(check_op):
    x = np.array([[1e4, 1e4 + 1], [-np.inf, 0], [-np.inf, -np.inf]], np.float32)
    nan = np.nan
    check_op("softmax", [x], [[[0.26894142, 0.7310586], [0, 1], [nan, nan]]], axis=1)
    check_op("log_softmax", [x], [[[-1.3132616, -0.3132617], [-np.inf, 0], [nan, nan]]], axis=1)


def test_sum_over_many_halves_does_not_saturate(check_op):
    x = np.zeros((1, 5000), np.float16)
    check_op("softmax", [x], [np.full((1, 5000), 1 / 5000)], rtol=1e-3, axis=1)


def test_empty(check_op):
    check_op("softmax", [np.zeros((0, 3), np.float32)], [np.zeros((0, 3))], axis=1)
    check_op("softmax", [np.zeros((3, 0), np.float32)], [np.zeros((3, 0))], axis=1)


def test_contract(make_op):
    with pytest.raises(OpError, match="expected floats"):
        make_op("softmax", [np.zeros((2,), np.int32)], axis=0)
    with pytest.raises(OpError, match="from 0 to 1"):
        make_op("softmax", [np.zeros((2, 2), np.float32)], axis=-1)
