# SPDX-License-Identifier: Apache-2.0
"""Random small nets to train: layers, sizes, loss, optimizer and options from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

import memc

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Softplus")
OPTIMIZERS: tuple[dict[str, Any], ...] = (
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9},
    {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"optimizer": "adam"},
    {"optimizer": "adamw", "weight_decay": 0.1},
)


@dataclass
class Net:
    """A net being drawn: `last` is the value that the next layer reads, of shape `shape`."""

    rng: np.random.Generator
    shape: tuple[int, ...]
    last: str = "x"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.last, *inputs], [name], **attrs))
        self.last, self.shape = name, shape

    def weight(self, *shape: int, positive: bool = False) -> str:
        name = f"w{len(self.weights)}"
        fan_in = max(int(np.prod(shape[1:])), 1)
        data = self.rng.normal(size=shape) / np.sqrt(fan_in)
        self.weights[name] = (1 + np.abs(data) if positive else data).astype(np.float32)
        return name

    def activate(self) -> None:
        self.add(str(self.rng.choice(ACTIVATIONS)), [], self.shape)

    def convolve(self, normalized: bool) -> None:
        """A convolution, without bias if it is `normalized` afterwards: the bias would have a gradient of rounding errors
        alone, which Adam makes steps of full length of."""
        batch, channels, height, width = self.shape
        group = channels if self.rng.random() < 0.25 else 1
        out = channels if group > 1 else int(self.rng.choice([1, 3, 4, 8, 16]))
        size, stride = int(self.rng.choice([1, 3])), int(self.rng.choice([1, 1, 2]))
        pads = [size // 2] * 4
        inputs = [self.weight(out, channels // group, size, size)]
        if self.rng.random() < 0.5 and not normalized:
            inputs.append(self.weight(out))
        shape = (batch, out, (height - 1) // stride + 1, (width - 1) // stride + 1)
        self.add("Conv", inputs, shape, group=group, kernel_shape=[size, size], strides=[stride] * 2, pads=pads)

    def normalize(self) -> None:
        channels = self.shape[1]
        scale, shift = self.weight(channels, positive=True), self.weight(channels)
        mean, variance = self.weight(channels), self.weight(channels, positive=True)
        self.add("BatchNormalization", [scale, shift, mean, variance], self.shape)

    def pool(self) -> None:
        batch, channels, height, width = self.shape
        op = "MaxPool" if self.rng.random() < 0.5 else "AveragePool"
        self.add(op, [], (batch, channels, height // 2, width // 2), kernel_shape=[2, 2], strides=[2, 2])

    def connect(self, out: int) -> None:
        self.add("Gemm", [self.weight(self.shape[1], out), self.weight(out)], (self.shape[0], out))


@dataclass
class Drawn:
    """A model to train, and batches with labels and learning rates."""

    model: onnx.ModelProto
    train: memc.BuildGradient
    feeds: list[dict[str, npt.NDArray[Any]]]
    options: dict[str, Any]


def draw_net(seed: int, steps: int = 3) -> Drawn:
    """The net of a seed: a few convolutions or none, then a few dense layers."""
    rng = np.random.default_rng(seed)
    batch = int(rng.choice([1, 2, 3, 7, 16]))
    if rng.random() < 0.6:
        net = Net(rng, (batch, int(rng.choice([1, 3, 4, 8])), *(int(n) for n in rng.integers(4, 14, 2))))
    else:
        net = Net(rng, (batch, int(rng.integers(2, 40))))
    given = net.shape
    if len(given) == 4:
        for _ in range(int(rng.integers(1, 4))):
            # Of few numbers, the deviation is all rounding: a stride of 2 leaves a quarter.
            normalized = rng.random() < 0.5 and batch * (net.shape[2] // 2) * (net.shape[3] // 2) > 8
            net.convolve(normalized)
            if normalized:
                net.normalize()
            net.activate()
            if rng.random() < 0.4 and min(net.shape[2:]) >= 2:
                net.pool()
        if rng.random() < 0.5:
            net.add("GlobalAveragePool", [], (*net.shape[:2], 1, 1))
        net.add("Flatten", [], (batch, int(np.prod(net.shape[1:]))))
    for _ in range(int(rng.integers(0, 3))):
        net.connect(int(rng.integers(2, 33)))
        net.activate()
    net.connect(int(rng.integers(2, 11)))
    loss = str(rng.choice(["softmax-cross-entropy", "mse", "bce-with-logits"]))
    clip = float(rng.choice([0.5, 5.0])) if rng.random() < 0.3 else None
    train = memc.BuildGradient(loss=loss, clip_norm=clip, **OPTIMIZERS[int(rng.integers(len(OPTIMIZERS)))])  # type: ignore[arg-type]
    feeds = [
        {"x": rng.normal(size=given).astype(np.float32), "labels": labels(rng, loss, net.shape)} for _ in range(steps)
    ]
    for step in feeds:
        step["learning_rate"] = np.asarray(0.01, np.float32)
    options = {"opt_level": int(rng.choice([1, 2, 2])), "kernels": str(rng.choice(["auto", "generated"]))}
    return Drawn(proto(net, given), train, feeds, options)


def labels(rng: np.random.Generator, loss: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Classes, numbers, or zeros and ones."""
    if loss == "softmax-cross-entropy":
        return np.asarray(rng.integers(0, shape[1], shape[0]))
    return np.asarray(rng.normal(size=shape) if loss == "mse" else rng.integers(0, 2, shape), np.float32)


def proto(net: Net, given: tuple[int, ...]) -> onnx.ModelProto:
    """The net as an ONNX model."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, given)
    y = helper.make_tensor_value_info(net.last, onnx.TensorProto.FLOAT, net.shape)
    stored = [numpy_helper.from_array(array, name) for name, array in net.weights.items()]
    graph = helper.make_graph(net.nodes, "net", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
