# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models that between them hold the layers which training has kernels of its own for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]


class Net:
    """A graph being written; tensors are names. Weights are drawn from a seeded generator."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float | None = None, value: Array | None = None) -> str:
        name = f"w{len(self.weights)}"
        if value is None:
            spread = scale if scale is not None else (2 / max(int(np.prod(shape[1:])), 1)) ** 0.5
            value = spread * self.rng.normal(size=shape)
        self.weights.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def ints(self, *values: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        names = [f"t{len(self.nodes)}.{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}{len(self.nodes)}", **attrs))
        return names[0]

    def norm(self, x: str, channels: int) -> str:
        given = [self.weight(value=np.ones(channels)), self.weight(value=np.zeros(channels))]
        running = [self.weight(value=np.zeros(channels)), self.weight(value=np.ones(channels))]
        return self.op("BatchNormalization", x, *given, *running)

    def linear(self, x: str, inner: int, outer: int) -> str:
        return self.op("Gemm", x, self.weight(outer, inner), self.weight(value=np.zeros(outer)), transB=1)

    def model(self, y: str, shape: Sequence[int | str], kind: int, classes: int) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Identity", [y], ["logits"])],
            "net",
            [helper.make_tensor_value_info("x", kind, ["batch", *shape])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mlp() -> onnx.ModelProto:
    """64 - 32 - 10 with a GELU by erf and a sigmoid gate."""
    net = Net()
    h = net.linear("x", 64, 32)
    gate = net.op("Sigmoid", net.linear("x", 64, 32))
    h = net.op("Mul", net.op("Tanh", h), gate)
    return net.model(net.linear(h, 32, 10), [64], TensorProto.FLOAT, 10)


def cnn() -> onnx.ModelProto:
    """Convolutions: strided, depthwise, pointwise, transposed; batch norm, both pools, residuals and a concat. 1 x 16 x 16 to
    10."""
    net = Net(1)
    x = net.op("Relu", net.norm(net.op("Conv", "x", net.weight(8, 1, 3, 3), pads=[1, 1, 1, 1]), 8))
    pooled = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    deep = net.op("Conv", pooled, net.weight(8, 1, 3, 3), pads=[1, 1, 1, 1], group=8)
    h = net.op("Clip", net.norm(deep, 8), net.weight(value=np.float32(0)), net.weight(value=np.float32(6)))
    h = net.op("Add", net.op("Conv", h, net.weight(8, 8, 1, 1)), pooled)
    half = net.op("Conv", h, net.weight(16, 8, 3, 3), net.weight(16), strides=[2, 2], pads=[1, 1, 1, 1])
    half = net.op("Relu", net.op("Add", half, net.op("Conv", h, net.weight(16, 8, 1, 1), strides=[2, 2])))
    up = net.op("ConvTranspose", half, net.weight(16, 8, 2, 2), strides=[2, 2])
    joined = net.op("Concat", up, net.op("AveragePool", h, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), axis=1)
    flat = net.op("Flatten", net.op("GlobalAveragePool", joined))
    return net.model(net.linear(flat, 16, 10), [1, 16, 16], TensorProto.FLOAT, 10)


def lstm() -> onnx.ModelProto:
    """Twelve steps of 8 numbers through an LSTM of 16 cells; the last state decides among 10 classes."""
    net = Net(2)
    steps = net.op("Transpose", "x", perm=[1, 0, 2])
    weights = [net.weight(1, 64, 8, scale=0.3), net.weight(1, 64, 16, scale=0.3), net.weight(1, 128, scale=0.1)]
    net.op("LSTM", steps, *weights, outputs=3, hidden_size=16)
    last = net.op("Squeeze", net.nodes[-1].output[1], net.ints(0))
    return net.model(net.linear(last, 16, 10), [12, 8], TensorProto.FLOAT, 10)


def transformer() -> onnx.ModelProto:
    """Tokens of a vocabulary of 50 through an embedding and a block of attention and MLP."""
    net = Net(3)
    width, heads, tokens = 32, 2, 12
    h = net.op("Gather", net.weight(50, width, scale=0.5), "x")
    h = net.op("Add", h, net.weight(tokens, width, scale=0.1))

    def layer_norm(x: str) -> str:
        return net.op("LayerNormalization", x, net.weight(value=np.ones(width)), net.weight(value=np.zeros(width)))

    def project(x: str, inner: int, outer: int, bias: bool = True) -> str:
        product = net.op("MatMul", x, net.weight(inner, outer, scale=inner**-0.5))
        return net.op("Add", product, net.weight(value=np.zeros(outer))) if bias else product

    def split(x: str, perm: list[int]) -> str:
        return net.op("Transpose", net.op("Reshape", x, net.ints(0, tokens, heads, width // heads)), perm=perm)

    normed = layer_norm(h)
    q = split(project(normed, width, width), [0, 2, 1, 3])
    # Without a bias: softmax does not change with it, so its gradient is rounding, which Adam makes large.
    k = split(project(normed, width, width, bias=False), [0, 2, 3, 1])
    v = split(project(normed, width, width), [0, 2, 1, 3])
    scores = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), net.weight(value=np.float32(0.35))), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    h = net.op("Add", h, project(net.op("Reshape", mixed, net.ints(0, tokens, width)), width, width))
    h = net.op("Add", h, project(net.op("Relu", project(layer_norm(h), width, 32)), 32, width))
    pooled = net.op("ReduceMean", layer_norm(h), axes=[1], keepdims=0)
    return net.model(net.linear(pooled, width, 10), [tokens], TensorProto.INT64, 10)


def dropout() -> onnx.ModelProto:
    """64 - 128 - 128 - 10 with ReLU, and dropout of a half and of a tenth."""
    net = Net(4)
    h = net.op("Relu", net.linear("x", 64, 128))
    h = net.op("Dropout", h, net.weight(value=np.float32(0.5)))
    h = net.op("Relu", net.linear(h, 128, 128))
    h = net.op("Dropout", h, net.weight(value=np.float32(0.1)))
    return net.model(net.linear(h, 128, 10), [64], TensorProto.FLOAT, 10)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "transformer": transformer,
    "dropout": dropout,
}


def batch_of(model: onnx.ModelProto, batch: int, seed: int) -> tuple[Array, Array]:
    """Inputs and labels for a model of this file."""
    rng = np.random.default_rng(seed)
    (x,) = model.graph.input
    shape = [batch, *(d.dim_value for d in x.type.tensor_type.shape.dim[1:])]
    tokens = x.type.tensor_type.elem_type == TensorProto.INT64
    data = rng.integers(0, 50, shape) if tokens else rng.normal(size=shape).astype(np.float32)
    return data, rng.integers(0, 10, batch)
