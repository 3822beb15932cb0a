# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's quantized elementwise ops, Softmax, Concat and Where."""

import numpy as np
import pytest

from memc.ir.errors import InvalidError, UnsupportedError

RANDOM = np.random.default_rng(5)
TYPES = [np.uint8, np.int8]
SCALES = [0.0173, 0.25]
"""Any scale, and a power of two, with which many results lie halfway between two integers."""


def integers(of, *shape):
    """All values, so that many results saturate."""
    info = np.iinfo(of)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(of)


def scale(value):
    return np.array(value, np.float32)


def zero(of, value=None):
    return np.array(integers(of, 1)[0] if value is None else value, of)


SHAPES = [((3, 4, 5), (3, 4, 5)), ((3, 4, 5), (5,)), ((2, 1, 7), (1, 3, 1)), ((), (4,)), ((1,), ())]


@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("a, b", SHAPES)
@pytest.mark.parametrize("unit", SCALES)
@pytest.mark.parametrize("known", [(), (1, 2, 4, 5, 6, 7)], ids=["given at run time", "known"])
def test_add_and_mul(same, of, a, b, unit, known):
    for op, out in (("QLinearAdd", 2 * unit), ("QLinearMul", 32 * unit)):
        inputs = [
            integers(of, *a),
            scale(unit),
            zero(of),
            integers(of, *b),
            scale(unit),
            zero(of),
            scale(out),
            zero(of),
        ]
        same(op, inputs, known=known, rounded=0.02)


@pytest.mark.parametrize("of", TYPES)
def test_zero_points_may_be_left_out(run, of):
    """They are zeros then, as the definitions say: onnxruntime refuses sums without, and aborts on functions without."""
    x, y, none = integers(of, 3, 40), integers(of, 3, 40), zero(of, 0)
    for op in ("QLinearAdd", "QLinearMul"):
        given = run(op, [x, scale(0.5), none, y, scale(0.5), none, scale(2), none])
        np.testing.assert_array_equal(run(op, [x, scale(0.5), None, y, scale(0.5), None, scale(2)]), given)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        given = run(op, [x, scale(0.125), none, scale(1 / 256), none])
        np.testing.assert_array_equal(run(op, [x, scale(0.125), None, scale(1 / 256)]), given)


@pytest.mark.parametrize("of", TYPES)
def test_exact_halves_round_to_the_even_sum_with_the_zero_point(run, of):
    x = np.array([1, 3, 5, 7], of)
    inputs = [x, scale(0.5), zero(of, 0), np.zeros(1, of), scale(1), zero(of, 0), scale(1), zero(of, 1)]
    np.testing.assert_array_equal(run("QLinearAdd", inputs)[0], [2, 2, 4, 4])
    inputs[3] = np.ones(1, of)
    np.testing.assert_array_equal(run("QLinearMul", inputs)[0], [2, 2, 4, 4])


@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("unit", SCALES)
@pytest.mark.parametrize("known", [(), (1, 2, 3, 4)], ids=["given at run time", "known"])
def test_functions(same, of, unit, known):
    x = integers(of, 4, 64)
    same("QLinearSigmoid", [x, scale(unit), zero(of), scale(1 / 256), zero(of)], known=known, rounded=0.02)
    for alpha in (0.01, 0.25, -1.0):
        inputs = [x, scale(unit), zero(of), scale(unit * 0.5), zero(of)]
        same("QLinearLeakyRelu", inputs, known=known, rounded=0.02, alpha=alpha)


@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("shape", [(5,), (2, 7), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax(same, of, shape, opset):
    for axis in range(-len(shape), len(shape)):
        inputs = [integers(of, *shape), scale(0.05), zero(of), scale(1 / 256), zero(of, np.iinfo(of).min)]
        same("QLinearSoftmax", inputs, rounded=0.05, axis=axis, more={"opset": opset})


@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("known", [True, False])
def test_concat(same, of, known):
    shared, offset = 0.25, zero(of)
    parts = [
        (integers(of, 2, n, 3), scale(u), z)
        for n, u, z in ((4, 0.1, zero(of)), (1, shared, offset), (2, 0.5, zero(of)))
    ]
    inputs = [scale(shared), offset, *(v for part in parts for v in part)]
    settings = tuple(i for i in range(len(inputs)) if i < 2 or i % 3 != 2)
    same("QLinearConcat", inputs, known=settings if known else (), rounded=0.02, axis=1)
    same("QLinearConcat", inputs[:5], known=settings[:4] if known else (), rounded=0.02, axis=-3)


@pytest.mark.parametrize("of", TYPES)
def test_where(same, of):
    chosen = RANDOM.integers(0, 2, (3, 1, 4)).astype(bool)
    inputs = [chosen, integers(of, 3, 5, 4), scale(0.3), zero(of), integers(of, 4), scale(0.7), zero(of)]
    same("QLinearWhere", [*inputs, scale(0.5), zero(of)], known=(2, 3, 5, 6, 7, 8), rounded=0.02)


@pytest.mark.parametrize("of", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_and_dequantize(same, of, axis):
    x = (40 * RANDOM.standard_normal((3, 4, 5))).astype(np.float32)
    count = 1 if axis is None else x.shape[axis]
    unit = RANDOM.uniform(0.1, 0.5, count).astype(np.float32).reshape(() if axis is None else (count,))
    offset = integers(of, count).reshape(unit.shape)
    attrs = {} if axis is None else {"axis": axis}
    same("QuantizeLinear", [x, unit, offset], rounded=0.01, **attrs)
    same("DequantizeLinear", [integers(of, 3, 4, 5), unit, offset], **attrs)
    same("DequantizeLinear", [integers(of, 3, 4, 5), unit], **attrs)


def test_refusals(run):
    x = integers(np.uint8, 2, 3)
    with pytest.raises(
        UnsupportedError, match=r"\(QLinearAdd\): expected u8 or i8 like input 0 as input 3, got i8\[2,3\]"
    ):
        run("QLinearAdd", [x, scale(1), None, x.astype(np.int8), scale(1), None, scale(1)])
    with pytest.raises(UnsupportedError, match=r"expected one element for the whole tensor as input 1, got f32\[3\]"):
        run("QLinearSigmoid", [x, np.ones(3, np.float32), None, scale(1)])
    with pytest.raises(InvalidError, match=r"\(QLinearSoftmax\): attribute `opset` is missing"):
        run("QLinearSoftmax", [x, scale(1), zero(np.uint8), scale(1), zero(np.uint8)])
    with pytest.raises(UnsupportedError, match="expected three inputs for each part after the first two, got 6"):
        run("QLinearConcat", [scale(1), zero(np.uint8), x, scale(1), zero(np.uint8), x], axis=0)
    with pytest.raises(InvalidError, match=r"\(QuantizeLinear\): no attribute `block_size` in com.microsoft"):
        run("QuantizeLinear", [np.zeros((2, 2), np.float32), scale(1)], block_size=2)
