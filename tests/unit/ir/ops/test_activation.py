# SPDX-License-Identifier: Apache-2.0
"""Activation functions, against Python's math on single elements."""

import math

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.runtime.codegen.debug import run_op

POINTS = [-90.0, -20.0, -7.25, -3.0, -1.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 7.25, 20.0, 90.0]
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12, np.float16: 2e-3, ml_dtypes.bfloat16: 1.6e-2}


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def gelu_tanh(v):
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


CASES = [
    ("relu", lambda v: max(v, 0.0), {}),
    ("sigmoid", sigmoid, {}),
    ("leaky_relu", lambda v: v if v >= 0 else 0.125 * v, {"alpha": 0.125}),
    ("elu", lambda v: v if v >= 0 else 1.5 * math.expm1(v), {"alpha": 1.5}),
    ("gelu", lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))), {"approximate": "none"}),
    ("gelu", gelu_tanh, {"approximate": "tanh"}),
    ("silu", lambda v: v * sigmoid(v), {}),
    ("hard_sigmoid", lambda v: min(max(0.25 * v + 0.5, 0.0), 1.0), {"alpha": 0.25, "beta": 0.5}),
    ("softplus", lambda v: max(v, 0) + math.log1p(math.exp(-abs(v))), {}),
    ("clip", lambda v: min(max(v, -1.5), 6.0), {"min": -1.5, "max": 6.0}),
]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name, function, attrs", CASES, ids=[c[0] + c[2].get("approximate", "") for c in CASES])
def test_values(check_op, name, function, attrs, dtype):
    x = np.array(POINTS).astype(dtype)
    expected = [function(v) for v in x.astype(np.float64).tolist()]
    # The tails of gelu cancel to a few ulps of 1 in f32, as in every formulation by erf.
    atol = 1e-6 if dtype is not np.float64 else 1e-14
    check_op(name, [x], [expected], rtol=TOLERANCE[dtype], atol=atol, **attrs)


def test_softplus_keeps_the_digits_of_small_results(check_op):
    x = np.array([-7.25, -16.5, -40.0, -80.0], np.float32)
    check_op("softplus", [x], [[math.log1p(math.exp(v)) for v in x.tolist()]], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "name, attrs, expected",
    [
        ("relu", {}, [np.inf, 0, np.nan]),
        ("sigmoid", {}, [1, 0, np.nan]),
        ("leaky_relu", {"alpha": 0.5}, [np.inf, -np.inf, np.nan]),
        ("elu", {"alpha": 2.0}, [np.inf, -2, np.nan]),
        ("softplus", {}, [np.inf, 0, np.nan]),
        ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}, [1, 0, np.nan]),
        ("clip", {"min": -1.0, "max": 1.0}, [1, -1, np.nan]),
    ],
)
def test_infinities_and_nan(check_op, name, attrs, expected):
    check_op(name, [np.array([np.inf, -np.inf, np.nan], np.float32)], [expected], **attrs)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integers(check_op, dtype):
    x = np.array([-128, -1, 0, 3, 127], dtype)
    check_op("relu", [x], [[0, 0, 0, 3, 127]])
    check_op("clip", [x], [[-2, -1, 0, 3, 5]], min=-2, max=5)


@pytest.mark.parametrize("name, attrs", [("relu", {}), ("silu", {}), ("clip", {"min": -2.0, "max": 3.0})])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_in_place(make_op, name, attrs, dtype):
    x = np.linspace(-5, 5, 48).astype(dtype).reshape(6, 8)
    op = make_op(name, [x], **attrs)
    np.testing.assert_array_equal(run_op(op, [x], in_place=0)[0], run_op(op, [x])[0])


@pytest.mark.parametrize(
    "name, dtype, attrs, message",
    [
        ("sigmoid", np.int32, {}, r"expected a float operand, got i32\[2\]"),
        ("leaky_relu", np.float32, {}, "expected a number as attribute `alpha`, got None"),
        ("gelu", np.float32, {"approximate": "fast"}, "`approximate` to be one of none, tanh, got 'fast'"),
        ("clip", np.float32, {"min": 2.0, "max": 1.0}, r"expected min <= max, got min = 2.0 and max = 1.0"),
        ("clip", np.float32, {"min": math.nan, "max": 1.0}, "expected min <= max"),
        ("clip", np.uint8, {"min": 0, "max": 300}, "expected an integer of type u8 as attribute `max`, got 300"),
        ("clip", np.int8, {"min": 0.5, "max": 3}, "expected an integer of type i8 as attribute `min`, got 0.5"),
    ],
)
def test_broken_contracts(make_op, name, dtype, attrs, message):
    with pytest.raises(OpError, match=message):
        make_op(name, [np.zeros(2, dtype)], **attrs)
