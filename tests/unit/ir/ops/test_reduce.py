# SPDX-License-Identifier: Apache-2.0
"""reduce_*: values against numpy, and the contract's edges."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(0)
NUMPY = {"reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_max": np.max, "reduce_min": np.min}


@pytest.mark.parametrize("name", sorted(NUMPY))
@pytest.mark.parametrize("axes, keepdims", [((0,), True), ((1,), False), ((0, 2), True), ((0, 1, 2), False)])
def test_against_numpy(check_op, name, axes, keepdims):
    x = RANDOM.standard_normal((3, 4, 5)).astype(np.float32)
    check_op(name, [x], [NUMPY[name](x, axis=axes, keepdims=keepdims)], axes=axes, keepdims=keepdims)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.uint64, np.float64])
@pytest.mark.parametrize("name", sorted(NUMPY))
def test_element_types(check_op, name, dtype):
    x = RANDOM.integers(0 if np.dtype(dtype).kind == "u" else -5, 6, (4, 6)).astype(dtype)
    options = {"dtype": dtype} if name in ("reduce_sum", "reduce_prod") else {}
    check_op(name, [x], [NUMPY[name](x, axis=1, **options)], axes=(1,), keepdims=False)


def test_half_precision_extremes(check_op):
    x = RANDOM.standard_normal((4, 6)).astype(np.float16)
    check_op("reduce_max", [x], [x.astype(np.float32).max(axis=0)], axes=(0,), keepdims=False)
    check_op("reduce_min", [x], [x.astype(np.float32).min(axis=0)], axes=(0,), keepdims=False)


def test_bool_extremes_are_any_and_all(check_op):
    x = np.array([[True, False], [False, False], [True, True]])
    check_op("reduce_max", [x], [[True, False, True]], axes=(1,), keepdims=False)
    check_op("reduce_min", [x], [[False, False, True]], axes=(1,), keepdims=False)


@pytest.mark.parametrize(
    "name, dtype, neutral",
    [
        ("reduce_sum", np.float32, 0),
        ("reduce_prod", np.float32, 1),
        ("reduce_max", np.float32, -np.inf),
        ("reduce_min", np.float32, np.inf),
        ("reduce_max", np.float16, -np.inf),
        ("reduce_max", np.int32, np.iinfo(np.int32).min),
        ("reduce_min", np.uint8, 255),
        ("reduce_max", np.bool_, False),
        ("reduce_min", np.bool_, True),
        ("reduce_mean", np.float32, np.nan),
    ],
)
def test_empty_range_gives_the_neutral_element(check_op, name, dtype, neutral):
    x = np.zeros((2, 0, 3), dtype)
    check_op(name, [x], [np.full((2, 1, 3), neutral)], axes=(1,), keepdims=True)


def test_empty_result(check_op):
    check_op("reduce_sum", [np.zeros((0, 3), np.float32)], [np.zeros((0,))], axes=(1,), keepdims=False)


def test_infinities(check_op):
    x = np.array([[-np.inf, -np.inf], [np.inf, 1.0]], np.float32)
    check_op("reduce_max", [x], [[-np.inf, np.inf]], axes=(1,), keepdims=False)
    check_op("reduce_min", [-x], [[np.inf, -np.inf]], axes=(1,), keepdims=False)
    check_op("reduce_sum", [x], [[-np.inf, np.inf]], axes=(1,), keepdims=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_nan_spreads(check_op, dtype):
    x = np.array([[1, np.nan, 3], [np.nan, 2, 1], [np.nan] * 3, [np.inf, 1, np.nan], [1, 2, 3]], dtype)
    nan = np.nan
    check_op("reduce_max", [x], [[nan, nan, nan, nan, 3]], axes=(1,), keepdims=False)
    check_op("reduce_min", [x], [[nan, nan, nan, nan, 1]], axes=(1,), keepdims=False)


def test_mean_of_half_precision_accumulates_in_f32(check_op):
    x = np.full((1, 4096), 30.0, np.float16)  # the sum overflows f16
    check_op("reduce_mean", [x], [[30.0]], axes=(1,), keepdims=False)


def test_mean_of_integers_truncates(check_op):
    check_op("reduce_mean", [np.array([[-1, -2], [2, 3]], np.int32)], [[-1, 2]], axes=(1,), keepdims=False)


@pytest.mark.parametrize("axes", [(), (3,), (-1,), (1, 0), (0, 0), None])
def test_bad_axes_are_rejected(make_op, axes):
    with pytest.raises(OpError, match="expected attribute `axes`"):
        make_op("reduce_sum", [np.zeros((2, 2, 2), np.float32)], axes=axes, keepdims=True)


def test_bf16_extremes_are_rejected(make_op):
    with pytest.raises(OpError, match="bf16 is cast to f32"):
        make_op("reduce_max", [np.zeros((2, 2), ml_dtypes.bfloat16)], axes=(0,), keepdims=True)


def test_half_precision_sums_and_empty_integer_means_are_rejected(make_op):
    with pytest.raises(OpError, match="half precision is cast"):
        make_op("reduce_sum", [np.zeros((2, 2), np.float16)], axes=(0,), keepdims=True)
    with pytest.raises(OpError, match="one or more integers"):
        make_op("reduce_mean", [np.zeros((2, 0), np.int32)], axes=(1,), keepdims=True)
