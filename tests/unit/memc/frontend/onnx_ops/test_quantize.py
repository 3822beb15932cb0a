# SPDX-License-Identifier: Apache-2.0
"""Importing QuantizeLinear and DequantizeLinear."""

import numpy as np
import pytest

RANDOM = np.random.default_rng(4)


@pytest.mark.parametrize("to", [np.uint8, np.int8])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantize_against_onnxruntime(same_as_ort, to, axis):
    x = (50 * RANDOM.standard_normal((2, 3, 8))).astype(np.float32)
    scale = np.float32(0.7) if axis is None else np.array([0.5, 0.25, 2], np.float32)
    zero = np.array(5, to) if axis is None else np.array([1, 2, 3], to)
    attrs = {} if axis is None else {"axis": axis}
    same_as_ort("QuantizeLinear", [x, np.asarray(scale), zero], opset=13, known=(1, 2), **attrs)
    same_as_ort("QuantizeLinear", [x, np.asarray(scale), zero], opset=13, **attrs)


@pytest.mark.parametrize("to, low, high", [(np.uint8, 0, 255), (np.int16, -32768, 32767), (np.uint16, 0, 65535)])
def test_quantize_saturates_and_rounds_half_to_even(run_node, to, low, high):
    x = np.array([-1e30, 1e30, np.inf, -np.inf, 0.5, 1.5, 2.5], np.float32)
    (found,) = run_node("QuantizeLinear", [x, np.array(1, np.float32), np.array(0, to)], opset=21)
    assert found.dtype == to
    np.testing.assert_array_equal(found, [low, high, high, low, 0, 2, 2])


def test_quantize_without_zero_point_and_with_output_type(run_node):
    x, scale = np.array([-3.0, 300.0], np.float32), np.array(1, np.float32)
    (found,) = run_node("QuantizeLinear", [x, scale], opset=21)
    np.testing.assert_array_equal(found, np.array([0, 255], np.uint8))
    (found,) = run_node("QuantizeLinear", [x, scale], opset=21, output_dtype=5)
    np.testing.assert_array_equal(found, np.array([-3, 300], np.int16))


@pytest.mark.parametrize("width", [4, 5])
def test_blocks(run_node, width):
    x = RANDOM.integers(-100, 100, (2, width)).astype(np.int8)
    scale = RANDOM.uniform(0.5, 2, (2, 3 if width == 5 else 2)).astype(np.float32)
    zero = RANDOM.integers(-3, 3, scale.shape).astype(np.int8)
    whole = [np.repeat(a, 2, axis=1)[:, :width].astype(np.float32) for a in (scale, zero)]
    (real,) = run_node("DequantizeLinear", [x, scale, zero], opset=21, axis=1, block_size=2)
    np.testing.assert_allclose(real, (x - whole[1]) * whole[0], rtol=1e-6)
    (back,) = run_node("QuantizeLinear", [real, scale, zero], opset=21, axis=1, block_size=2)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("of", [np.uint8, np.int8])
def test_dequantize_against_onnxruntime(same_as_ort, axis, of):
    x = RANDOM.integers(0, 100, (2, 6)).astype(of)
    scale = np.array(0.1, np.float32) if axis is None else np.array([0.1, 0.2], np.float32)
    zero = np.array(7, of) if axis is None else np.array([7, 8], of)
    same_as_ort("DequantizeLinear", [x, scale, zero], opset=13, **({} if axis is None else {"axis": axis}))


def test_dequantize_i32(same_as_ort):
    same_as_ort("DequantizeLinear", [np.array([-70000, 70000], np.int32), np.array(0.5, np.float32)], opset=13)


@pytest.mark.parametrize(
    "scales", [np.array(0.01, np.float32), np.full(2, 0.01, np.float32)], ids=["one", "by channel"]
)
def test_sums_that_only_f32_scales_to_a_half(same_as_ort, scales):
    """3100 steps of 0.05 * 0.01 / 3.1 are a little above a half, and a half in f32: onnxruntime takes that to even."""
    x, w = np.full((1, 1, 2, 2), 31, np.uint8), np.full((2, 1, 1, 1), 100, np.int8)
    zero = np.zeros_like(scales, dtype=np.int8)
    scale, step = np.array(0.05, np.float32), np.array(3.1, np.float32)
    given = [x, scale, np.array(0, np.uint8), w, scales, zero, step, np.array(100, np.uint8)]
    same_as_ort("QLinearConv", given, known=range(1, 8))
    same_as_ort("QLinearConv", [*given[:7], np.array(101, np.uint8)], known=range(1, 8))
