# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network, as PyTorch exports one for training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def build() -> onnx.ModelProto:
    """A residual block: relu(bn(conv x)), a pool, relu(a + bn(conv a)), the mean, and 10 classes."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, channels, normalized in (("stem", 3, "bn1"), ("conv", 8, "bn2")):
        shapes[f"{name}.weight"] = (8, channels, 3, 3)
        shapes |= {f"{normalized}.{part}": (8,) for part in ("weight", "bias", "running_mean", "running_var")}
    shapes |= {"fc.weight": (10, 8), "fc.bias": (10,)}
    pads = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}

    def bn(name: str, x: str, out: str) -> onnx.NodeProto:
        parts = [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        return helper.make_node("BatchNormalization", [x, *parts], [out], name=f"/{name}/BatchNormalization")

    nodes = [
        helper.make_node("Conv", ["x", "stem.weight"], ["c1"], name="/stem/Conv", **pads),
        bn("bn1", "c1", "b1"),
        helper.make_node("Relu", ["b1"], ["r1"], name="/relu/Relu"),
        helper.make_node("MaxPool", ["r1"], ["a"], name="/pool/MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["a", "conv.weight"], ["c2"], name="/block/conv/Conv", **pads),
        bn("bn2", "c2", "b2"),
        helper.make_node("Add", ["b2", "a"], ["s"], name="/block/Add"),
        helper.make_node("Relu", ["s"], ["r2"], name="/block/relu/Relu"),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"], name="/gap/GlobalAveragePool"),
        helper.make_node("Flatten", ["g"], ["f"], name="/Flatten"),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"], name="/fc/Gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in shapes.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "small.onnx"
    onnx.save(build(), path)
    return path
