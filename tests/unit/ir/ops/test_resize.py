# SPDX-License-Identifier: Apache-2.0
"""resize and resize_nearest: values against numpy, and the contract's edges."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_nearest_takes_table_positions(check_op, dtype):
    x = (RANDOM.standard_normal((2, 3, 4, 5)) * 50).astype(dtype)
    rows, columns = np.array([0, 3, 3, 1, 2], np.int32), np.array([4, 0], np.int32)
    check_op("resize_nearest", [x, rows, columns], [x[:, :, rows][:, :, :, columns]], axes=(2, 3))


def test_nearest_holds_indices_inside(check_op):
    x = np.arange(3, dtype=np.float32)
    check_op("resize_nearest", [x, np.array([-7, 1, 99], np.int32)], [[0, 1, 2]], axes=(0,))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_multiply_over_axes(check_op, dtype):
    x = RANDOM.standard_normal((2, 4, 5)).astype(dtype)
    i, j = RANDOM.integers(0, 4, (3, 2)).astype(np.int32), RANDOM.integers(0, 5, (6, 4)).astype(np.int32)
    wi, wj = RANDOM.standard_normal((3, 2)).astype(dtype), RANDOM.standard_normal((6, 4)).astype(dtype)
    expected = np.einsum("nitju,it,ju->nij", x[:, i][:, :, :, j], wi, wj)
    check_op("resize", [x, i, wi, j, wj], [expected], rtol=1e-4, atol=1e-5, axes=(1, 2))


@pytest.mark.parametrize(
    "inputs, axes, message",
    [
        ([np.zeros((2, 2), np.float32), np.zeros((3, 1), np.int32)], (0,), "index and a weight table"),
        ([np.zeros(2, np.int32), np.zeros((3, 1), np.int32), np.zeros((3, 1), np.int32)], (0,), "f32 or f64"),
        ([np.zeros(2, np.float32), np.zeros((3, 1), np.int32), np.zeros((3, 2), np.float32)], (0,), "tables"),
        ([np.zeros(2, np.float32), np.zeros((3, 1), np.int32), np.zeros((3, 1), np.float32)], (1,), "axes"),
    ],
)
def test_contract(make_op, inputs, axes, message):
    with pytest.raises(OpError, match=message):
        make_op("resize", inputs, axes=axes)
