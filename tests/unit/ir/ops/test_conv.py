# SPDX-License-Identifier: Apache-2.0
"""conv, conv_transpose and col2im: values against onnxruntime and numpy, and the contract's edges."""

import numpy as np
import onnx
import onnxruntime
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(0)


def run_onnx(op_type, inputs, **attrs):
    names = [f"x{i}" for i in range(len(inputs))]
    node = onnx.helper.make_node(op_type, names, ["y"], **attrs)
    types = [onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for a in inputs]
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info(n, t, a.shape) for n, t, a in zip(names, types, inputs)],
        [onnx.helper.make_tensor_value_info("y", types[0], None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs)))[0]


def random(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


CONVOLUTIONS = [
    # x, w, strides, pads, dilations, group
    ((2, 3, 9), (4, 3, 3), (1,), (1, 1), (1,), 1),
    ((1, 4, 11), (6, 2, 4), (2,), (0, 3), (2,), 2),
    ((2, 3, 7, 6), (4, 3, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 3, 7, 8), (4, 3, 3, 2), (2, 1), (1, 0, 2, 1), (1, 2), 1),
    ((1, 4, 6, 6), (8, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    ((1, 6, 5, 5), (4, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 2),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 0, 1, 1, 0), (1, 1, 2), 1),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("x, w, strides, pads, dilations, group", CONVOLUTIONS)
def test_conv_against_onnxruntime(check_op, x, w, strides, pads, dilations, group, bias):
    inputs = [random(*x), random(*w)] + ([random(w[0])] if bias else [])
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    check_op("conv", inputs, [run_onnx("Conv", inputs, **attrs)], rtol=1e-4, atol=1e-5, **attrs)


def test_half_precision_accumulates_in_f32(check_op):
    x, w = (np.full(s, 0.1, np.float16) for s in ((1, 2048, 1), (1, 2048, 1)))
    expected = np.sum(x.astype(np.float32) * w.astype(np.float32).reshape(1, 2048, 1))
    check_op("conv", [x, w], [[[[expected]]]], rtol=1e-5, strides=(1,), pads=(0, 0), dilations=(1,), group=1)


def test_integers_are_exact(check_op):
    x = np.full((1, 300, 2), 32767, np.int32)
    w = np.full((1, 300, 2), 200, np.int32)
    total = 32767 * 200 * 600
    wrapped = np.array(total, np.int64).astype(np.int32)
    check_op("conv", [x, w], [[[[wrapped]]]], strides=(1,), pads=(0, 0), dilations=(1,), group=1)


@pytest.mark.parametrize(
    "shapes, attrs, message",
    [
        (((1, 3, 5, 5), (4, 2, 3, 3)), {}, "multiple of the group"),
        (((1, 3, 5, 5), (4, 3, 3)), {}, "same rank"),
        (((1, 3, 2, 2), (4, 3, 3, 3)), {}, "padded extent of at least 3"),
        (((1, 3, 5, 5), (4, 3, 3, 3)), {"strides": (0, 1)}, "strides"),
        (((1, 3, 5, 5), (4, 3, 3, 3), (3,)), {}, r"bias \[4\]"),
    ],
)
def test_conv_contract(make_op, shapes, attrs, message):
    given = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1, **attrs}
    with pytest.raises(OpError, match=message):
        make_op("conv", [np.zeros(s, np.float32) for s in shapes], **given)


TRANSPOSED = [
    ((1, 3, 5), (3, 2, 3), (2,), (1, 0), (1,), 1, (1,)),
    ((2, 3, 4, 4), (3, 2, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1, (0, 0)),
    ((1, 4, 3, 4), (4, 2, 3, 2), (2, 3), (1, 0, 1, 1), (1, 2), 2, (1, 0)),
    ((1, 2, 2, 3, 2), (2, 1, 2, 2, 3), (2, 1, 2), (0, 0, 1, 0, 1, 0), (1, 1, 1), 1, (0, 0, 1)),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("x, w, strides, pads, dilations, group, output_padding", TRANSPOSED)
def test_conv_transpose_against_onnxruntime(check_op, x, w, strides, pads, dilations, group, output_padding, bias):
    inputs = [random(*x), random(*w)] + ([random(w[1] * group)] if bias else [])
    attrs = {
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "group": group,
        "output_padding": output_padding,
    }
    check_op("conv_transpose", inputs, [run_onnx("ConvTranspose", inputs, **attrs)], rtol=1e-4, atol=1e-5, **attrs)


def test_output_padding_beyond_every_patch_holds_the_bias(check_op):
    x, w, b = random(1, 1, 2), random(1, 1, 1), random(1)
    expected = np.full((1, 1, 6), b[0])
    expected[0, 0, 0], expected[0, 0, 3] = x[0, 0] * w[0, 0, 0] + b[0]
    attrs = {"strides": (3,), "pads": (0, 0), "dilations": (1,), "group": 1, "output_padding": (2,)}
    check_op("conv_transpose", [x, w, b], [expected], **attrs)


def test_col2im_sums_overlapping_patches(check_op):
    image = (5, 4)
    patches = random(2, 3 * 4, 4 * 3)
    expected = np.zeros((2, 3, 5 + 2, 4 + 2), np.float32)
    blocks = patches.reshape(2, 3, 2, 2, 4, 3)
    for i in range(2):
        for j in range(2):
            for row in range(4):
                for column in range(3):
                    expected[:, :, row + 2 * i, 2 * column + j] += blocks[:, :, i, j, row, column]
    attrs = {"kernel": (2, 2), "strides": (1, 2), "pads": (1, 1, 0, 1), "dilations": (2, 1)}
    expected = expected[:, :, 1 : 1 + image[0], 1 : 1 + image[1]]
    check_op("col2im", [patches], [expected], shape=image, **attrs)
