# SPDX-License-Identifier: Apache-2.0
"""Importing convolutions and pools, against onnxruntime."""

import numpy as np
import onnx
import onnx.helper
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


def padded(x, pads, value=0.0):
    """The input with padding around its spatial axes, a negative one taken away, as numpy writes it."""
    rank = x.ndim - 2
    around = [(max(pads[a], 0), max(pads[rank + a], 0)) for a in range(rank)]
    cut = tuple(slice(max(-pads[a], 0), x.shape[2 + a] - max(-pads[rank + a], 0)) for a in range(rank))
    return np.pad(x[(..., *cut)], [(0, 0), (0, 0), *around], constant_values=value)


def run_ort(op, inputs, **attrs):
    """onnxruntime's first output of a node."""
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [onnx.helper.make_tensor_value_info(n, 1, a.shape) for n, a in zip(names, inputs)]
    node = onnx.helper.make_node(op, names, ["y"], **attrs)
    graph = onnx.helper.make_graph([node], "g", infos, [onnx.helper.make_empty_tensor_value_info("y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs)))[0]


NEGATIVE = [([-1, 0, 0, -2], 2), ([-2, 1, 1, -1], 2), ([2, -1, -3, -1], 2), ([-1, -2], 1), ([0, -1, 1, -1, 0, -1], 3)]


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize(("pads", "rank"), NEGATIVE)
def test_negative_pads_of_convolutions(run_node, pads, rank, strides):
    x, w = random(2, 4, 9, 8, 7)[(..., *[0] * (3 - rank))], random(6, 2, 3, 2, 2)[(..., *[0] * (3 - rank))]
    attrs = {"strides": [strides] * rank, "group": 2}
    (found,) = run_node("Conv", [x, w, random(6)], pads=pads, **attrs)
    (other,) = run_node("Conv", [x, w], pads=pads, **attrs)
    expected = run_ort("Conv", [padded(x, pads), w], **attrs)
    np.testing.assert_allclose(other, expected, rtol=1e-4, atol=1e-5)
    assert found.shape == expected.shape and not np.allclose(found, other)


@pytest.mark.parametrize(("pads", "rank"), NEGATIVE[:4])
def test_negative_pads_of_transposed_convolutions(run_node, pads, rank):
    """They add to the result, as positive ones take away from it."""
    x, w, bias = random(2, 4, 5, 6)[(..., *[0] * (2 - rank))], random(4, 3, 3, 2)[(..., *[0] * (2 - rank))], random(3)
    (found,) = run_node("ConvTranspose", [x, w, bias], pads=pads, strides=[2] * rank)
    whole = run_ort("ConvTranspose", [x, w], strides=[2] * rank)
    expected = padded(whole, [-pad for pad in pads]) + bias.reshape(3, *[1] * rank)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize(("pads", "rank"), NEGATIVE)
def test_negative_pads_of_pools(run_node, pads, rank, ceil):
    x = random(2, 3, 9, 8, 7)[(..., *[0] * (3 - rank))]
    attrs = {"kernel_shape": [3] * rank, "strides": [2] * rank, "ceil_mode": ceil}
    cut, rest = padded(x, [min(pad, 0) for pad in pads]), [max(pad, 0) for pad in pads]
    for op, more in (
        ("MaxPool", {}),
        ("AveragePool", {}),
        ("AveragePool", {"count_include_pad": 1}),
        ("LpPool", {"p": 2}),
    ):
        if ceil and more and ORT_VERSION < (1, 20):
            continue
        found = run_node(op, [x], pads=pads, **attrs, **more)[0]
        expected = run_ort(op, [cut], pads=rest, **attrs, **more)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("pads", "rank"), NEGATIVE)
def test_negative_pads_leave_indices_those_of_the_input(run_node, pads, rank, order):
    x = random(2, 3, 9, 8, 7)[(..., *[0] * (3 - rank))]
    attrs = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": pads, "storage_order": order}
    found, indices = run_node("MaxPool", [x], outputs=2, opset=12, **attrs)
    if order:
        x = x.transpose(0, 1, *reversed(range(2, x.ndim)))
    np.testing.assert_array_equal(x.reshape(-1)[indices], found)


def test_negative_pads_that_cannot_be(run_node):
    x, w = random(1, 1, 5, 5), random(1, 1, 1, 1)
    with pytest.raises(UnsupportedError, match=r"negative pads \[-3, 0, -2, 0\] that leave nothing of the input"):
        run_node("Conv", [x, w], pads=[-3, 0, -2, 0])
    with pytest.raises(UnsupportedError, match="negative pads"):
        run_node("DeformConv", [x, w, np.zeros((1, 2, 3, 5), np.float32)], opset=19, pads=[-1, 0, -1, 0])
