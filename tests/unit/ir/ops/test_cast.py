# SPDX-License-Identifier: Apache-2.0
"""cast and bitcast: every pair of element types, wrapping, truncation and rounding."""

import struct

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition
from memc.ir.types import DType
from memc.runtime.codegen.debug import run_op

SMALL = [0, 1, 2, 100, 127]
FLOATS = [d for d in DType if d.is_float]
INTEGERS = [d for d in DType if d.is_integer]


@pytest.mark.parametrize("to", list(DType), ids=lambda d: d.value)
@pytest.mark.parametrize("source", list(DType), ids=lambda d: d.value)
def test_values_that_both_types_hold(check_op, source, to):
    x = np.array(SMALL).astype(source.numpy)
    expected = [int(v) for v in x.astype(np.float64)]
    check_op("cast", [x], [[bool(v) for v in expected] if to is DType.BOOL else expected], to=to)


@pytest.mark.parametrize("to", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.value)
def test_floats_truncate_towards_zero(check_op, source, to):
    x = np.array([0.9, 1.5, 2.5, 100.75]).astype(source.numpy)
    check_op("cast", [x], [[int(v) for v in x.astype(np.float64)]], to=to)
    if to.is_signed:
        check_op("cast", [-x], [[-int(v) for v in x.astype(np.float64)]], to=to)


@pytest.mark.parametrize("to", [DType.U8, DType.I8, DType.U16, DType.I16, DType.U32], ids=lambda d: d.value)
@pytest.mark.parametrize("source", [DType.F32, DType.F64, DType.I64, DType.I32], ids=lambda d: d.value)
def test_out_of_range_wraps(check_op, source, to):
    values = [-1, -100, 300, 70000]
    bits = 8 * to.itemsize
    wrapped = [v % (1 << bits) for v in values]
    if to.is_signed:
        wrapped = [v - (1 << bits) if v >= 1 << (bits - 1) else v for v in wrapped]
    check_op("cast", [np.array(values).astype(source.numpy)], [wrapped], to=to)


@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.value)
def test_to_bool_is_not_zero(check_op, source):
    x = np.array([0, -0.0, 0.25, -3, np.nan, np.inf]).astype(source.numpy)
    check_op("cast", [x], [[False, False, True, True, True, True]], to=DType.BOOL)


@pytest.mark.parametrize("to", [DType.F16, DType.BF16], ids=lambda d: d.value)
def test_narrow_floats_round_to_nearest_even(check_op, make_op, to):
    step = 2.0**-10 if to is DType.F16 else 2.0**-7
    x = np.array([1 + step / 2, 1 + 1.5 * step, 1 + 0.75 * step, 1e-30, np.inf, -np.inf, np.nan], np.float32)
    tiny = 0.0 if to is DType.F16 else float(x[3])
    expected = [1, 1 + 2 * step, 1 + step, tiny, np.inf, -np.inf, np.nan]
    check_op("cast", [x], [expected], to=to, rtol=8e-3 if to is DType.BF16 else 1e-6, atol=0)
    (found,) = run_op(make_op("cast", [x], to=to), [x])
    assert found.astype(np.float64)[:3].tolist() == [1, 1 + 2 * step, 1 + step]


def test_f16_overflow_becomes_infinite(check_op):
    check_op("cast", [np.array([65504, 70000, -1e6], np.float32)], [[65504, np.inf, -np.inf]], to=DType.F16)


def test_in_place_needs_equal_sizes(make_op):
    x = np.arange(-20, 20, dtype=np.float32)
    op = make_op("cast", [x], to=DType.I32)
    assert list(definition(op).in_place(op)) == [0]
    assert run_op(op, [x], in_place=0)[0].tolist() == list(range(-20, 20))
    op = make_op("cast", [x], to=DType.F16)
    assert list(definition(op).in_place(op)) == []
    assert definition(op).view is None


def test_bitcast(check_op):
    x = np.array([1.0, -2.5, 3e38], np.float32)
    bits = [struct.unpack("<i", struct.pack("<f", v))[0] for v in x.tolist()]
    check_op("bitcast", [x], [bits], to=DType.I32, rtol=0)
    check_op("bitcast", [np.array(bits, np.int32)], [x], to=DType.F32, rtol=0)
    check_op("bitcast", [np.array([255, 1], np.uint8)], [[-1, 1]], to=DType.I8)
    check_op("bitcast", [np.array([0x3C00], np.uint16)], [[1]], to=DType.F16)
    check_op("bitcast", [np.array([0x3F80], np.uint16)], [[1]], to=DType.BF16)
    check_op("bitcast", [np.zeros((0, 2), np.float64)], [np.zeros((0, 2))], to=DType.U64)


def test_bitcast_is_a_view(make_op):
    op = make_op("bitcast", [np.zeros(3, np.float32)], to=DType.I32)
    assert definition(op).view(op) == 0


@pytest.mark.parametrize(
    "name, attrs, message",
    [
        ("cast", {}, "expected an element type as attribute `to`, got None"),
        ("cast", {"to": "f16"}, "expected an element type as attribute `to`, got 'f16'"),
        ("bitcast", {"to": DType.F16}, r"expected a non-bool type of 4 bytes like f32\[3\], got f16"),
    ],
)
def test_broken_contracts(make_op, name, attrs, message):
    with pytest.raises(OpError, match=message):
        make_op(name, [np.zeros(3, np.float32)], **attrs)
