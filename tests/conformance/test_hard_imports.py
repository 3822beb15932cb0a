# SPDX-License-Identifier: Apache-2.0
"""Small models whose attributes and shapes importers have read wrongly, end to end against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import memc

from .hard_models import check, data, model


def test_squeeze_axes_as_attribute_and_as_input() -> None:
    old = model("(float[1,8,1,6] x) => (float[1,8,6] y) { y = Squeeze<axes: ints = [2]>(x) }", opset=11)
    new = model("(float[1,8,1,6] x) => (float[1,8,6] y) { y = Squeeze(x, axes) }", 13, {"axes": np.array([2])})
    for proto in (old, new):
        check(proto, {"x": data((1, 8, 1, 6))}, levels=(2,))


def test_reshape_placeholders() -> None:
    check(
        model("(float[2,3,4] x) => (float[2,12] y) { y = Reshape(x, s) }", 14, {"s": np.array([0, -1])}),
        {"x": data((2, 3, 4))},
        levels=(2,),
    )
    check(
        model(
            "(float[0,3] x) => (float[3,0] y) { y = Reshape<allowzero: int = 1>(x, s) }", 14, {"s": np.array([3, 0])}
        ),
        {"x": data((0, 3))},
        levels=(2,),
    )


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_either_meaning(opset: int, op: str) -> None:
    check(
        model(f"(float[2,3,4] x) => (float[2,3,4] y) {{ y = {op}<axis: int = 1>(x) }}", opset), {"x": data((2, 3, 4))}
    )


def test_average_pool_end_pad_and_ceil_mode() -> None:
    proto = model(
        "(float[1,2,17,17] x) => (float[1,2,9,9] y) { y = AveragePool<kernel_shape: ints = [2,2], strides: ints = [2,2], "
        "pads: ints = [0,0,1,1], ceil_mode: int = 1>(x) }"
    )
    check(proto, {"x": data((1, 2, 17, 17))}, levels=(2,))


def test_average_pool_same_lower_counting_pads() -> None:
    proto = model(
        "(float[1,2,7,7] x) => (float[1,2,4,4] y) { y = AveragePool<kernel_shape: ints = [2,2], strides: ints = [2,2], "
        'auto_pad: string = "SAME_LOWER", count_include_pad: int = 1>(x) }'
    )
    check(proto, {"x": data((1, 2, 7, 7))}, levels=(2,))


def test_split_sizes_and_shapes_from_foldable_subgraphs() -> None:
    proto = model(
        "(float[6,4] x) => (float[2,4] y, float[4,4] z, float[4,6] w) { s = Shape(x) n = Gather(s, zero) "
        "third = Div(n, three) rest = Sub(n, third) sizes = Concat<axis: int = 0>(third, rest) y, z = Split(x, sizes) "
        "f = Cast<to: int = 1>(s) g = Cast<to: int = 7>(f) shape = Slice(g, back, front, zero, back) "
        "e = ConstantOfShape(shape) r = Reshape(x, shape) w = Add(r, e) }",
        initializers={
            "zero": np.array([0]),
            "three": np.array([3]),
            "back": np.array([-1]),
            "front": np.array([np.iinfo(np.int64).min]),
        },
    )
    check(proto, {"x": data((6, 4))}, levels=(2,))


def test_a_contradicting_value_info() -> None:
    proto = model("(float[2,3] x) => (float[2,3] y) { t = Neg(x) y = Relu(t) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [3, 2]))
    try:
        compilation = memc.compile(proto, plan_only=True)
    except memc.MemcError as error:
        assert "[3,2]" in str(error).replace(" ", "") and "[2,3]" in str(error).replace(" ", "")
    else:
        assert compilation.module.main.returns[0].type.shape == (2, 3)


def test_an_output_declared_with_another_shape() -> None:
    proto = model("(float[2,3] x) => (float[3,2] y) { y = Relu(x) }")
    with pytest.raises(memc.MemcError, match=r"3, ?2.*2, ?3|2, ?3.*3, ?2"):
        memc.compile(proto, plan_only=True)
