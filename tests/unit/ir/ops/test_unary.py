# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of one operand, against Python's math on single elements."""

import math

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.runtime.codegen.debug import run_op

REALS = [-2.5, -1.0, -0.75, -0.3, -1e-4, 0.0, 1e-4, 0.2, 0.5, 0.99, 1.0, 1.5, 2.5, 3.5]
POSITIVE = [1e-3, 0.2, 1.0, 1.5, 9.0, 1e4]
UNIT = [-0.99, -0.5, -1e-3, 0.0, 0.25, 0.9]
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13, np.float16: 2e-3, ml_dtypes.bfloat16: 1.6e-2}

CASES = [
    ("exp", math.exp, REALS),
    ("log", math.log, POSITIVE),
    ("sqrt", math.sqrt, POSITIVE),
    ("rsqrt", lambda v: 1 / math.sqrt(v), POSITIVE),
    ("reciprocal", lambda v: 1 / v, POSITIVE),
    ("sin", math.sin, REALS),
    ("cos", math.cos, REALS),
    ("tan", math.tan, UNIT),
    ("asin", math.asin, UNIT),
    ("acos", math.acos, UNIT),
    ("atan", math.atan, REALS),
    ("sinh", math.sinh, REALS),
    ("cosh", math.cosh, REALS),
    ("tanh", math.tanh, REALS),
    ("asinh", math.asinh, REALS),
    ("acosh", math.acosh, [1.0, 1.5, 9.0]),
    ("atanh", math.atanh, UNIT),
    ("erf", math.erf, REALS),
    ("floor", math.floor, REALS),
    ("ceil", math.ceil, REALS),
    ("round", round, REALS),
    ("trunc", math.trunc, REALS),
    ("neg", lambda v: -v, REALS),
    ("abs", abs, REALS),
    ("sign", lambda v: (v > 0) - (v < 0), REALS),
]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name, function, points", CASES, ids=[c[0] for c in CASES])
def test_floats(check_op, name, function, points, dtype):
    x = np.array(points).astype(dtype)
    expected = [function(v) for v in x.astype(np.float64).tolist()]
    check_op(name, [x], [expected], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 1e-2)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("exp", [np.inf, 0, np.nan]),
        ("log", [np.inf, np.nan, np.nan]),
        ("sqrt", [np.inf, np.nan, np.nan]),
        ("tanh", [1, -1, np.nan]),
        ("erf", [1, -1, np.nan]),
        ("sign", [1, -1, np.nan]),
        ("abs", [np.inf, np.inf, np.nan]),
        ("floor", [np.inf, -np.inf, np.nan]),
        ("round", [np.inf, -np.inf, np.nan]),
    ],
)
def test_infinities_and_nan(check_op, name, expected):
    check_op(name, [np.array([np.inf, -np.inf, np.nan], np.float32)], [expected])


def test_neg_keeps_the_sign_of_zero(make_op):
    x = np.array([0.0, -0.0], np.float32)
    (found,) = run_op(make_op("neg", [x]), [x])
    assert np.signbit(found).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_signed_integers(check_op, dtype):
    x = np.array([0, 1, -1, 7, -100], dtype)
    check_op("neg", [x], [[0, -1, 1, -7, 100]])
    check_op("abs", [x], [[0, 1, 1, 7, 100]])
    check_op("sign", [x], [[0, 1, -1, 1, -1]])
    check_op("bitwise_not", [x], [[-1, -2, 0, -8, 99]])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_integers(check_op, dtype):
    top = int(np.iinfo(dtype).max)
    x = np.array([0, 1, 5, top], dtype)
    check_op("neg", [x], [np.array([0, top, top - 4, 1], dtype)])
    check_op("abs", [x], [x])
    check_op("sign", [x], [[0, 1, 1, 1]])
    check_op("bitwise_not", [x], [np.array([top, top - 1, top - 5, 0], dtype)])


def test_logical_not(check_op):
    check_op("logical_not", [np.array([True, False])], [[False, True]])


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: np.dtype(d).name)
def test_tests_for_special_values(check_op, dtype):
    x = np.array([1, np.inf, -np.inf, np.nan, 0]).astype(dtype)
    check_op("is_nan", [x], [[False, False, False, True, False]])
    check_op("is_inf", [x], [[False, True, True, False, False]])


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3, 1)])
def test_shapes(check_op, shape):
    x = np.full(shape, 4.0, np.float32)
    check_op("sqrt", [x], [np.full(shape, 2.0)])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_in_place(make_op, dtype):
    x = np.arange(-20, 20).astype(dtype)
    op = make_op("abs", [x])
    (found,) = run_op(op, [x], in_place=0)
    assert found.tolist() == [abs(v) for v in range(-20, 20)]


def test_a_smaller_result_is_not_in_place(make_op):
    from memc.ir.ops.shared.op_def import definition

    op = make_op("is_nan", [np.zeros(3, np.float32)])
    assert definition(op).in_place(op) == []
    op = make_op("exp", [np.zeros(3, np.float32)])
    assert definition(op).in_place(op) == [0]


@pytest.mark.parametrize(
    "name, x, message",
    [
        ("exp", np.zeros(3, np.int32), r"expected a float operand, got i32\[3\]"),
        ("neg", np.zeros(3, np.bool_), r"expected a number operand, got bool\[3\]"),
        ("logical_not", np.zeros(3, np.int8), r"expected a bool operand, got i8\[3\]"),
        ("bitwise_not", np.zeros(3, np.float32), r"expected an integer operand, got f32\[3\]"),
    ],
)
def test_wrong_element_type(make_op, name, x, message):
    with pytest.raises(OpError, match=message):
        make_op(name, [x])


def test_wrong_operand_count(make_op):
    with pytest.raises(OpError, match="expected 1 operand, got 2"):
        make_op("exp", [np.zeros(3, np.float32)] * 2)
