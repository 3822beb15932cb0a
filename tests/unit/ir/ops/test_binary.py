# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of two operands, against Python's arithmetic on single elements."""

import itertools
import math
import operator

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import Trait, definition
from memc.runtime.codegen.debug import run_op

FLOATS = [-7.0, -2.5, -1.0, 0.0, 0.5, 1.0, 3.0, 8.0]
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-13, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}

ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max}
COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def pairs(values, dtype):
    """All pairs of the values, as two arrays."""
    both = list(itertools.product(values, values))
    return [np.array([p[i] for p in both]).astype(dtype) for i in (0, 1)]


def each(function, x, y):
    return [function(a, b) for a, b in zip(x.tolist(), y.tolist())]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS])
def test_floats(check_op, name, dtype):
    x, y = pairs(FLOATS, dtype)
    expected = each({**ARITHMETIC, **COMPARISONS}[name], x.astype(float), y.astype(float))
    check_op(name, [x, y], [expected], rtol=TOLERANCE[dtype], atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_float_division_and_remainders(check_op, dtype):
    x, y = pairs([-7.0, -2.5, 0.0, 0.5, 3.0, 8.0], dtype)
    with np.errstate(all="ignore"):
        check_op("div", [x, y], [x.astype(float) / y.astype(float)], rtol=TOLERANCE[dtype])
    divisible = y != 0
    x, y = x[divisible], y[divisible]
    check_op("fmod", [x, y], [each(math.fmod, x, y)], rtol=TOLERANCE[dtype])
    check_op("mod", [x, y], [each(operator.mod, x, y)], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_float_powers(check_op, dtype):
    x = np.array([2, 2, 9, 9, -2, -2, 0, 1.5], dtype)
    y = np.array([3, -1, 0.5, 0, 3, 2, 2, 4], dtype)
    check_op("pow", [x, y], [[8, 0.5, 3, 1, -8, 4, 0, 5.0625]], rtol=TOLERANCE[dtype])
    check_op("pow", [np.array([-8.0, np.inf], dtype), np.array([1 / 3, 2], dtype)], [[np.nan, np.inf]])


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def wrapped(value, dtype):
    """An integer as the type keeps it: modulo 2^bits."""
    bits = 8 * np.dtype(dtype).itemsize
    value %= 1 << bits
    return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >= 1 << (bits - 1) else value


def quotient(a, b):
    """Truncating; by zero 0."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_integer_arithmetic(check_op, dtype):
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 100, int(info.max), int(info.min)] + ([-1, -3, -7] if info.min < 0 else [])
    x, y = (np.array([p[i] for p in itertools.product(values, values)], dtype) for i in (0, 1))

    def check(name, function):
        expected = np.array([wrapped(v, dtype) for v in each(function, x, y)], dtype)
        check_op(name, [x, y], [expected], rtol=0, atol=0)

    for name, function in ARITHMETIC.items():
        check(name, function)
    check("div", quotient)
    check("mod", lambda a, b: a % b if b else 0)
    check("fmod", lambda a, b: a - quotient(a, b) * b if b else 0)
    check("bitwise_and", operator.and_)
    check("bitwise_or", operator.or_)
    check("bitwise_xor", operator.xor)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_integer_comparisons(check_op, dtype):
    info = np.iinfo(dtype)
    values = [0, 1, 5, int(info.max), int(info.min)]
    x, y = (np.array([p[i] for p in itertools.product(values, values)], dtype) for i in (0, 1))
    for name, function in COMPARISONS.items():
        check_op(name, [x, y], [each(function, x, y)])


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_integer_powers(check_op, dtype):
    x, y = np.array([0, 0, 1, 2, 3, 5, 2, 10], dtype), np.array([0, 3, 9, 6, 4, 3, 1, 2], dtype)
    check_op("pow", [x, y], [each(operator.pow, x, y)], rtol=0, atol=0)


def test_negative_integer_powers(check_op):
    x, y = np.array([2, 1, -1, -1, -3, -2], np.int32), np.array([-1, -5, -2, -3, 3, 2], np.int32)
    check_op("pow", [x, y], [[0, 1, 1, -1, -27, 4]])


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_shifts_by_more_than_the_width_are_defined(check_op, dtype):
    values = [0, 1, 5, int(np.iinfo(dtype).max)] + ([-1, -100] if np.dtype(dtype).kind == "i" else [])
    x, y = (np.array([p[i] for p in itertools.product(values, [0, 1, 7, 8, 63, 64])], dtype) for i in (0, 1))
    left = np.array([wrapped(v, dtype) for v in each(operator.lshift, x, y)], dtype)
    check_op("shift_left", [x, y], [left])
    check_op("shift_right", [x, y], [each(operator.rshift, x, y)])


def test_booleans(check_op):
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    check_op("logical_and", [x, y], [[True, False, False, False]])
    check_op("logical_or", [x, y], [[True, True, True, False]])
    check_op("logical_xor", [x, y], [[False, True, True, False]])
    check_op("equal", [x, y], [[True, False, False, True]])
    check_op("not_equal", [x, y], [[False, True, True, False]])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_nan_wins_in_min_and_max_from_either_side(check_op, dtype):
    x, y = np.array([np.nan, 1, 2, np.nan], dtype), np.array([1, np.nan, 3, np.nan], dtype)
    check_op("max", [x, y], [[np.nan, np.nan, 3, np.nan]])
    check_op("min", [x, y], [[np.nan, np.nan, 2, np.nan]])
    check_op("equal", [x, y], [[False] * 4])
    check_op("not_equal", [x, y], [[True] * 4])


@pytest.mark.parametrize(
    "a, b, result",
    [
        ((3, 1, 4), (5, 1), (3, 5, 4)),
        ((), (2, 3), (2, 3)),
        ((), (), ()),
        ((0, 3), (1, 3), (0, 3)),
        ((1,), (0,), (0,)),
        ((2, 3), (1,), (2, 3)),
    ],
)
def test_broadcasting(check_op, a, b, result):
    x = np.arange(math.prod(a), dtype=np.float32).reshape(a)
    y = np.arange(math.prod(b), dtype=np.float32).reshape(b) * 10
    expected = np.empty(result)
    for place in np.ndindex(*result):
        at_x, at_y = (
            tuple(0 if extent == 1 else i for i, extent in zip(place[len(place) - len(s) :], s)) for s in (a, b)
        )
        expected[place] = x[at_x] - y[at_y]
    check_op("sub", [x, y], [expected])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("operand", [0, 1])
def test_in_place(make_op, dtype, operand):
    x, y = np.arange(64).astype(dtype), np.arange(64)[::-1].astype(dtype) * 2
    (found,) = run_op(make_op("sub", [x, y]), [x, y], in_place=operand)
    assert found.tolist() == [i - 2 * (63 - i) for i in range(64)]


def test_only_operands_of_the_result_s_shape_and_size_are_in_place(make_op):
    def allowed(name, *arrays):
        op = make_op(name, list(arrays))
        return list(definition(op).in_place(op))

    full, row = np.zeros((3, 4), np.float32), np.zeros((4,), np.float32)
    assert allowed("add", full, full) == [0, 1]
    assert allowed("add", full, row) == [0]
    assert allowed("add", row, full) == [1]
    assert allowed("add", np.zeros((3, 1), np.float32), row) == []
    assert allowed("less", full, full) == []
    assert allowed("less", full.astype(np.int8), full.astype(np.int8)) == [0, 1]


def test_commutative_ops_do_not_depend_on_the_order(make_op):
    x, y = np.array([-3, 4, 7], np.int32), np.array([2, 4, -7], np.int32)
    named = [d for d in ("add", "mul", "equal", "not_equal", "bitwise_and", "bitwise_or", "bitwise_xor")]
    for name in named:
        op = make_op(name, [x, y])
        assert Trait.COMMUTATIVE in definition(op).traits
        assert run_op(op, [x, y])[0].tolist() == run_op(op, [y, x])[0].tolist()
    assert Trait.COMMUTATIVE not in definition(make_op("sub", [x, y])).traits


@pytest.mark.parametrize(
    "name, x, y, message",
    [
        ("add", np.zeros(2, np.float32), np.zeros(2, np.int32), r"one element type, got f32\[2\], i32\[2\]"),
        ("add", np.zeros(2, np.bool_), np.zeros(2, np.bool_), "expected a number as operands"),
        ("logical_and", np.zeros(2, np.int8), np.zeros(2, np.int8), "expected a bool as operands"),
        ("shift_left", np.zeros(2, np.float32), np.zeros(2, np.float32), "expected an integer as operands"),
        ("add", np.zeros((2, 3), np.float32), np.zeros(2, np.float32), r"shapes \[2, 3\] and \[2\] do not broadcast"),
        ("mul", np.zeros(0, np.float32), np.zeros(2, np.float32), r"axis -1 has extents \[0, 2\]"),
    ],
)
def test_broken_contracts(make_op, name, x, y, message):
    with pytest.raises(OpError, match=message):
        make_op(name, [x, y])
