# SPDX-License-Identifier: Apache-2.0
"""Importing convolutions and pools, against onnxruntime."""

import numpy as np
import onnxruntime
import pytest

from memc.ir.errors import MemcError, UnsupportedError

RANDOM = np.random.default_rng(0)
ORT_VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


def random(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [7, 11, 22])
@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 1], "kernel_shape": [3, 2]},
        {"auto_pad": "VALID", "dilations": [2, 1]},
        {"pads": [0, 1, 2, 0], "strides": [1, 2]},
    ],
)
def test_conv(same_as_ort, opset, attrs):
    same_as_ort("Conv", [random(2, 3, 8, 7), random(4, 3, 3, 2), random(4)], opset=opset, rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 3]},
        {"strides": [2, 2], "output_shape": [8, 9]},
        {"strides": [2, 2], "output_shape": [8, 9], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "output_padding": [1, 0], "pads": [1, 0, 0, 2]},
        {"dilations": [2, 1], "group": 2},
    ],
)
def test_conv_transpose(same_as_ort, attrs):
    w = random(4, 2, 3, 3)
    same_as_ort("ConvTranspose", [random(1, 4, 4, 4), w], opset=11, rtol=1e-4, atol=1e-5, **attrs)


POOLS = [
    {"kernel_shape": [3, 2]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 1, 1, 0], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1},
]


@pytest.mark.parametrize("size", [(17, 17), (8, 9)])
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("attrs", POOLS)
def test_average_pool(same_as_ort, attrs, count, size):
    if count and attrs.get("ceil_mode") and ORT_VERSION < (1, 24):
        pytest.skip("onnxruntime 1.23 counts padding beyond the end; the next test has the values")
    same_as_ort("AveragePool", [random(1, 2, *size)], opset=19, rtol=1e-4, count_include_pad=count, **attrs)


def test_average_pool_rounded_up_at_the_end_padding(run_node):
    x = np.arange(289, dtype=np.float32).reshape(1, 1, 17, 17)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1}
    (y,) = run_node("AveragePool", [x], opset=19, **attrs)
    assert y.shape == (1, 1, 9, 9)
    assert y[0, 0, 8, 8] == 288 and y[0, 0, 8, 0] == x[0, 0, 16, :2].mean()
    (y,) = run_node("AveragePool", [x], opset=19, count_include_pad=1, **attrs)
    assert y[0, 0, 8, 8] == 288 / 4 and y[0, 0, 8, 0] == x[0, 0, 16, :2].sum() / 4


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("attrs", POOLS)
def test_max_pool_with_indices(same_as_ort, attrs, storage_order):
    x = RANDOM.integers(0, 4, (2, 2, 8, 9)).astype(np.float32)
    same_as_ort("MaxPool", [x], outputs=2, opset=12, storage_order=storage_order, **attrs)


def test_max_pool_of_bytes(same_as_ort):
    x = RANDOM.integers(0, 256, (1, 2, 5, 5)).astype(np.uint8)
    same_as_ort("MaxPool", [x], opset=12, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("op_type", ["LpPool", "GlobalLpPool"])
def test_lp_pools(same_as_ort, op_type, p):
    window = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]} if op_type == "LpPool" else {}
    same_as_ort(op_type, [random(1, 2, 5, 6)], opset=11, rtol=1e-4, p=p, **window)


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("spatial", [(5,), (4, 3), (2, 3, 4)])
def test_global_pools(same_as_ort, op_type, spatial):
    same_as_ort(op_type, [random(2, 3, *spatial)], opset=11, rtol=1e-4)


def test_max_unpool(same_as_ort):
    x = random(1, 2, 2, 2)
    indices = np.array([[0, 2, 8, 11], [16, 18, 29, 31]], np.int64).reshape(1, 2, 2, 2)
    same_as_ort("MaxUnpool", [x, indices], opset=11, kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(same_as_ort, size):
    same_as_ort("LRN", [random(2, 5, 3, 2)], opset=11, rtol=1e-4, size=size, alpha=0.1, beta=0.6, bias=1.5)


def test_lrn_of_even_size_reaches_further_after(run_node):
    x = np.ones((1, 4, 1), np.float32)
    (y,) = run_node("LRN", [x], size=2, alpha=2.0, beta=1.0, bias=0.0)
    np.testing.assert_allclose(y.reshape(-1), [1 / 2, 1 / 2, 1 / 2, 1])


@pytest.mark.parametrize(
    "inputs, attrs",
    [
        ([random(1, 3, 5, 5), random(4, 3, 3, 3)], {"kernel_shape": [2, 2]}),
        ([random(1, 3, 5, 5), random(4, 3, 3)], {}),
        ([random(1, 3, 5, 5), random(4, 3, 3, 3)], {"strides": [1]}),
        ([random(1, 3, 2, 2), random(4, 3, 3, 3)], {}),
    ],
)
def test_contradictions_are_one_line(run_node, inputs, attrs):
    with pytest.raises(MemcError) as caught:
        run_node("Conv", inputs, **attrs)
    assert "\n" not in str(caught.value) and "node" in str(caught.value)


def test_negative_pads_are_unsupported(run_node):
    with pytest.raises(UnsupportedError, match="negative pads"):
        run_node("Conv", [random(1, 1, 5, 5), random(1, 1, 3, 3)], pads=[-1, 0, 0, 0])
