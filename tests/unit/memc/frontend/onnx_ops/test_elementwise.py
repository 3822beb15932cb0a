# SPDX-License-Identifier: Apache-2.0
"""Importing elementwise ops, against onnxruntime and, where it lacks a form, the standard's formulas."""

import math

import numpy as np
import onnx
import pytest

from memc.frontend.onnx.context import NodeContext
from memc.frontend.onnx.ops.elementwise import two_operands
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Value
from memc.ir.errors import MemcError, UnsupportedError
from memc.ir.module import Module
from memc.ir.types import DType, TensorType

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-3, 3, (2, 3, 4)).astype(np.float32)
UNIT = RANDOM.uniform(-0.9, 0.9, (2, 3)).astype(np.float32)


@pytest.mark.parametrize("op", ["Abs", "Neg", "Exp", "Floor", "Ceil", "Sqrt", "Log", "Reciprocal"])
@pytest.mark.parametrize("opset", [7, 13, 18])
def test_unary(same_as_ort, op, opset):
    same_as_ort(op, [np.abs(X) if op in ("Sqrt", "Log", "Reciprocal") else X], opset=opset)


@pytest.mark.parametrize("op", ["Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Atanh"])
def test_trigonometry(same_as_ort, op):
    same_as_ort(op, [UNIT])


@pytest.mark.parametrize("op", ["Erf", "Sign", "Round", "IsNaN"])
def test_more_unary(same_as_ort, run_node, op):
    x = np.array([0.5, 1.5, -2.5, 0, np.nan], np.float32)
    if op == "Erf":  # 1 for NaN in onnxruntime 1.23
        assert np.isnan(run_node(op, [x])[0]).tolist() == [False] * 4 + [True]
        x = x[:4]
    same_as_ort(op, [x])


def test_acosh_and_not(same_as_ort):
    same_as_ort("Acosh", [np.abs(X) + 1])
    same_as_ort("Not", [np.array([True, False])])


@pytest.mark.parametrize("negative, positive", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_is_inf(same_as_ort, negative, positive):
    x = np.array([1, np.inf, -np.inf, np.nan], np.float32)
    same_as_ort("IsInf", [x], detect_negative=negative, detect_positive=positive)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"])
@pytest.mark.parametrize("opset", [8, 13, 18])
def test_binary_broadcasts(same_as_ort, op, opset):
    a, b = np.abs(X) + 0.5, RANDOM.uniform(0.5, 2, (3, 1)).astype(np.float32)
    same_as_ort(op, [a, b], opset=opset)
    same_as_ort(op, [b, a], opset=opset)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_division_truncates(same_as_ort, dtype):
    same_as_ort("Div", [np.array([7, -7, 7, -7], dtype), np.array([2, 2, -2, -2], dtype)])


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons(same_as_ort, op):
    same_as_ort(op, [np.array([1, 2, 3, np.nan], np.float32), np.array([2, 2, 2, 2], np.float32)])


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal"])
def test_logic(same_as_ort, op):
    same_as_ort(op, [np.array([[True], [False]]), np.array([True, False])])


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bitwise(same_as_ort, op):
    same_as_ort(op, [np.array([12, -7, 255], np.int32), np.array([10, 3, -1], np.int32)])


def test_bitwise_not_and_shift(same_as_ort, run_node):
    same_as_ort("BitwiseNot", [np.array([12, -7], np.int32)])
    for direction in ("LEFT", "RIGHT"):
        same_as_ort("BitShift", [np.array([16, 255], np.uint32), np.array([2, 7], np.uint32)], direction=direction)
    with pytest.raises(MemcError, match="direction"):
        run_node("BitShift", [np.uint8([1]), np.uint8([1])], direction="UP")


@pytest.mark.parametrize("base, exponent", [(np.float32, np.int64), (np.int32, np.float32), (np.int64, np.int32)])
def test_pow_of_mixed_types(same_as_ort, base, exponent):
    same_as_ort("Pow", [np.array([1, 2, 3], base), np.array([4, 3, 2], exponent)], opset=15)


@pytest.mark.parametrize("fmod", [0, 1])
def test_integer_mod(same_as_ort, fmod):
    same_as_ort("Mod", [np.array([7, -7, 7, -7], np.int64), np.array([3, 3, -3, -3], np.int64)], fmod=fmod)


def test_float_mod(same_as_ort):
    same_as_ort("Mod", [np.array([4.3, -4.3, 5.0], np.float32), np.array([2.1, 2.1, -3.0], np.float32)], fmod=1)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_variadic(same_as_ort, op, count):
    parts = [RANDOM.standard_normal(s).astype(np.float32) for s in [(2, 3), (3,), (1, 3), (2, 1)]]
    same_as_ort(op, parts[:count], opset=13)


def test_where(same_as_ort):
    same_as_ort("Where", [np.array([[True], [False]]), X[0, :2, :3], np.float32([5])])


@pytest.mark.parametrize("axis, shape", [(0, (2,)), (1, (3,)), (1, (3, 4)), (2, (4,)), (None, (3, 4)), (None, ())])
def test_broadcasting_by_axis_before_opset_7(axis, shape):
    attrs = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    node = onnx.helper.make_node("Add", ["a", "b"], ["y"], **attrs)
    a, b = (Value(n, TensorType(DType.F32, s)) for n, s in (("a", (2, 3, 4)), ("b", shape)))
    function = Function([a, b])
    found = two_operands(NodeContext(node, 6, [a, b], IRBuilder(Module([function]), function, function.ops)))
    trailing = 0 if axis is None else 3 - axis - len(shape)
    assert found[0] is a and found[1].type.shape == shape + (1,) * trailing


@pytest.mark.parametrize("source", [np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("to", [np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_])
def test_cast(same_as_ort, source, to):
    same_as_ort(
        "Cast", [np.array([0, 1, 2.75, 100]).astype(source)], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to))
    )


def test_cast_to_the_same_type_is_no_op(run_node):
    x = np.float32([1, 2])
    assert run_node("Cast", [x], to=onnx.TensorProto.FLOAT)[0].tolist() == [1, 2]


def test_cast_to_a_type_the_ir_lacks(run_node):
    with pytest.raises(UnsupportedError, match=r"`node` \(Cast\): element type FLOAT8E5M2"):
        run_node("Cast", [np.float32([1])], opset=19, to=onnx.TensorProto.FLOAT8E5M2)


def test_cast_like(same_as_ort):
    same_as_ort("CastLike", [np.float32([1.5, -2.5]), np.int64([0])])


@pytest.mark.parametrize("low, high", [(-1.0, 1.5), (None, 0.5), (-0.5, None), (0.0, None), (None, None), (2.0, -2.0)])
@pytest.mark.parametrize("known", [True, False])
def test_clip_by_inputs(same_as_ort, low, high, known):
    bounds = [None if v is None else np.array(v, np.float32) for v in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    same_as_ort("Clip", [X, *bounds], opset=13, known=(1, 2) if known else ())


@pytest.mark.parametrize("attrs", [{}, {"min": -1.0}, {"max": 1.0}, {"min": -1.0, "max": 1.0}])
def test_clip_by_attributes(same_as_ort, attrs):
    same_as_ort("Clip", [X], opset=7, **attrs)


def test_clip_of_integers(same_as_ort):
    x = np.array([-5, 0, 5], np.int64)
    same_as_ort("Clip", [x, np.int64(-2), np.int64(3)], opset=13, known=(1, 2))
    same_as_ort("Clip", [x, None, np.int64(3)], opset=13, known=(2,))


@pytest.mark.parametrize("opset", [7, 10, 12, 13])
def test_dropout_at_inference(run_node, opset):
    found, mask = run_node("Dropout", [X], outputs=2, opset=opset)
    assert found.tolist() == X.tolist()
    assert mask.dtype == (np.bool_ if opset >= 10 else np.float32) and mask.all() and mask.shape == X.shape


def test_dropout_training_mode(run_node):
    inputs = [X, np.float32(0), np.bool_(True)]
    assert run_node("Dropout", inputs, known=(1, 2))[0].tolist() == X.tolist()
    inputs = [X, np.float32(0.5), np.bool_(False)]
    assert run_node("Dropout", inputs, known=(1, 2))[0].tolist() == X.tolist()


@pytest.mark.parametrize("shape", [(0,), (0, 3), ()])
def test_empty_tensors_and_scalars(run_node, shape):
    x = np.ones(shape, np.float32)
    for op, expected in (("Exp", math.e), ("Neg", -1)):
        (found,) = run_node(op, [x])
        assert found.shape == shape and np.allclose(found, expected)
    (found,) = run_node("Add", [x, np.float32(2)])
    assert found.shape == shape and np.allclose(found, 3)
