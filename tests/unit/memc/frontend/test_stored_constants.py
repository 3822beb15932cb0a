# SPDX-License-Identifier: Apache-2.0
"""Which stored tensors of an ONNX model are trained: parameters, and not the numbers and masks that an exporter computed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memc.frontend.onnx import import_onnx
from memc.ir.core import Array
from memc.ir.evaluate import evaluate

LOWEST = np.finfo(np.float32).min


def model(name: str, array: Array, producer: str) -> onnx.ModelProto:
    """x w + array, where w is [2, 2] and x [3, 2]."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", name], ["y"])]
    stored = [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"), numpy_helper.from_array(array, name)]
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    return helper.make_model(graph, producer_name=producer, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


HIDING = np.array([[0, LOWEST], [0, 0], [-np.inf, 0]], np.float32)


@pytest.mark.parametrize(
    ("name", "array", "producer", "trained"),
    [
        ("val_7", np.float32(0.5), "pytorch", False),
        ("val_7", np.float32(0.5), "keras", True),
        ("logit_scale", np.float32(0.5), "pytorch", True),
        ("val_7", np.full((1, 2), 0.5, np.float32), "pytorch", True),  # A parameter that was transposed.
        ("mask", HIDING, "", False),
        ("mask", HIDING - np.float32(1), "", True),
        ("mask", np.zeros((3, 2), np.float32), "pytorch", True),  # A bias that starts with zeros.
        ("where_1", np.zeros((3, 2), np.float32), "pytorch", False),
        ("bias", np.array([-2e4, 0], np.float32), "", True),
    ],
)
def test_what_is_trained(name: str, array: Array, producer: str, trained: bool) -> None:
    module = import_onnx(model(name, array, producer), trainable=True)
    weights = {p.name for p in module.main.params if p.name in module.weights} - module.constants
    assert weights == ({"w", name} if trained else {"w"})
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(evaluate(module, {"x": x})["y"], x + array)
