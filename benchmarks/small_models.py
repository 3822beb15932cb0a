# SPDX-License-Identifier: Apache-2.0
"""Models whose training steps are small enough to be solved to the optimum, and random layered graphs of that size."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto
from training_models import Net

from memc.solvers.recompute import RecomputeProblem

FLOAT = TensorProto.FLOAT


def conv(net: Net, x: str, inner: int, outer: int, size: int = 3, stride: int = 1) -> str:
    pad = size // 2
    weights = [net.weight(outer, inner, size, size), net.weight(value=np.zeros(outer))]
    return net.op("Conv", x, *weights, pads=[pad] * 4, strides=[stride] * 2)


def pool(net: Net, x: str) -> str:
    return net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])


def mlp() -> onnx.ModelProto:
    """784 - 512 - 512 - 256 - 256 - 10 with ReLUs."""
    net, h = Net(), "x"
    for inner, outer in ((784, 512), (512, 512), (512, 256), (256, 256)):
        h = net.op("Relu", net.linear(h, inner, outer))
    return net.model(net.linear(h, 256, 10), [784], FLOAT, 10)


def lenet() -> onnx.ModelProto:
    """LeCun et al. 1998 with ReLUs and max pooling, on 1 x 32 x 32."""
    net, h = Net(), "x"
    for inner, outer in ((1, 6), (6, 16)):
        weights = [net.weight(outer, inner, 5, 5), net.weight(value=np.zeros(outer))]
        h = pool(net, net.op("Relu", net.op("Conv", h, *weights)))
    h = net.op("Flatten", h)
    for inner, outer in ((400, 120), (120, 84)):
        h = net.op("Relu", net.linear(h, inner, outer))
    return net.model(net.linear(h, 84, 10), [1, 32, 32], FLOAT, 10)


def vgg() -> onnx.ModelProto:
    """VGG-11 (Simonyan and Zisserman 2014) with one dense layer before the last, on 3 x 32 x 32."""
    net, h, inner = Net(), "x", 3
    widths = ((64, True), (128, True), (256, False), (256, True), (512, False), (512, True), (512, False), (512, True))
    for outer, last in widths:
        h = net.op("Relu", conv(net, h, inner, outer))
        h = pool(net, h) if last else h
        inner = outer
    h = net.op("Relu", net.linear(net.op("Flatten", h), 512, 512))
    return net.model(net.linear(h, 512, 10), [3, 32, 32], FLOAT, 10)


def residual_block(net: Net, x: str, inner: int, outer: int) -> str:
    stride = 1 if inner == outer else 2
    h = net.op("Relu", net.norm(conv(net, x, inner, outer, stride=stride), outer))
    h = net.norm(conv(net, h, outer, outer), outer)
    short = x if inner == outer else net.norm(conv(net, x, inner, outer, 1, 2), outer)
    return net.op("Relu", net.op("Add", h, short))


def resnet() -> onnx.ModelProto:
    """A ResNet for 3 x 32 x 32: one block of 16 and one of 32 channels."""
    net = Net()
    h = net.op("Relu", net.norm(conv(net, "x", 3, 16), 16))
    for inner, outer in ((16, 16), (16, 32)):
        h = residual_block(net, h, inner, outer)
    h = net.op("Flatten", net.op("GlobalAveragePool", h))
    return net.model(net.linear(h, 32, 10), [3, 32, 32], FLOAT, 10)


def unet() -> onnx.ModelProto:
    """A U-Net of two levels on 3 x 64 x 64, its result averaged to ten classes."""
    net = Net()
    top = net.op("Relu", conv(net, net.op("Relu", conv(net, "x", 3, 16)), 16, 16))
    middle = net.op("Relu", conv(net, net.op("Relu", conv(net, pool(net, top), 16, 32)), 32, 32))
    h = net.op("Relu", conv(net, net.op("Relu", conv(net, pool(net, middle), 32, 64)), 64, 64))
    for skip, inner, outer in ((middle, 64, 32), (top, 32, 16)):
        up = net.op("ConvTranspose", h, net.weight(inner, outer, 2, 2), strides=[2, 2])
        h = net.op("Relu", conv(net, net.op("Concat", skip, up, axis=1), inner, outer))
    h = net.op("Flatten", net.op("GlobalAveragePool", conv(net, h, 16, 10, 1)))
    return net.model(h, [3, 64, 64], FLOAT, 10)


def lstm() -> onnx.ModelProto:
    """Four steps of 64 numbers through 256 cells, unrolled; the last state decides among 10 classes."""
    net = Net()
    inputs, cells, steps = 64, 256, 4
    weights = [net.weight(inputs + cells, 4 * cells, scale=0.05), net.weight(value=np.zeros(4 * cells))]
    state = hidden = ""
    for step in range(steps):
        piece = net.op("Slice", "x", net.ints(step), net.ints(step + 1), net.ints(1))
        x = net.op("Squeeze", piece, net.ints(1))
        if step == 0:
            x = net.op("Pad", x, net.ints(0, 0, 0, cells))
        else:
            x = net.op("Concat", x, hidden, axis=1)
        gates = net.op("Add", net.op("MatMul", x, weights[0]), weights[1])
        i, f, o, g = (
            net.op("Slice", gates, net.ints(k * cells), net.ints((k + 1) * cells), net.ints(1)) for k in range(4)
        )
        new = net.op("Mul", net.op("Sigmoid", i), net.op("Tanh", g))
        state = new if step == 0 else net.op("Add", net.op("Mul", net.op("Sigmoid", f), state), new)
        hidden = net.op("Mul", net.op("Sigmoid", o), net.op("Tanh", state))
    return net.model(net.linear(hidden, cells, 10), [steps, inputs], FLOAT, 10)


def transformer() -> onnx.ModelProto:
    """Two pre-norm blocks of width 128 and 4 heads over 64 tokens."""
    net, width, heads, tokens = Net(), 128, 4, 64

    def layer_norm(x: str) -> str:
        return net.op("LayerNormalization", x, net.weight(value=np.ones(width)), net.weight(value=np.zeros(width)))

    def project(x: str, inner: int, outer: int) -> str:
        return net.op("MatMul", x, net.weight(inner, outer, scale=inner**-0.5))

    def split(x: str, perm: list[int]) -> str:
        return net.op("Transpose", net.op("Reshape", x, net.ints(0, tokens, heads, width // heads)), perm=perm)

    h = "x"
    for _ in range(2):
        normed = layer_norm(h)
        q, k, v = (split(project(normed, width, width), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), net.weight(value=np.float32(0.18))), axis=-1)
        mixed = net.op("Transpose", net.op("MatMul", scores, v), perm=[0, 2, 1, 3])
        h = net.op("Add", h, project(net.op("Reshape", mixed, net.ints(0, tokens, width)), width, width))
        h = net.op("Add", h, project(net.op("Relu", project(layer_norm(h), width, 4 * width)), 4 * width, width))
    pooled = net.op("ReduceMean", layer_norm(h), axes=[1], keepdims=0)
    return net.model(net.linear(pooled, width, 10), [tokens, width], FLOAT, 10)


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], int]] = {
    "mlp": (mlp, 2048),
    "lenet": (lenet, 256),
    "vgg": (vgg, 256),
    "resnet": (resnet, 128),
    "unet": (unet, 16),
    "lstm": (lstm, 1024),
    "transformer": (transformer, 32),
}
"""How to make each, and a batch size at which activations outweigh weights."""


def layered(seed: int, forward: int) -> RecomputeProblem:
    """A random training step of `forward` layered ops and as many of its backward pass, which read what the forward
    ones made. Each op reads the one before it, and one in three a second of the last eight; sizes and costs span a
    factor of 16, drawn apart from each other.
    """
    rng = random.Random(seed)
    size = [1 << 10] * (2 * forward)
    for op in range(forward):
        size[op] = 1024 * round(2 ** rng.uniform(4, 8))
        size[2 * forward - 1 - op] = size[op]  # A gradient is as large as what it is of.
    cost = [round(2 ** rng.uniform(0, 4) * 1000) for _ in range(forward)]
    reads: list[list[int]] = [[]]
    for op in range(1, forward):
        further = [rng.randrange(max(0, op - 8), op)] if rng.random() < 1 / 3 else []
        reads.append(list(dict.fromkeys([op - 1, *further])))
    readers: list[list[int]] = [[r for r in range(forward) if op in reads[r]] for op in range(forward)]
    for op in reversed(range(forward)):
        gradients = [2 * forward - 1 - reader for reader in readers[op]]
        saved = reads[op] if rng.random() < 2 / 3 else [op]
        reads.append(list(dict.fromkeys([*sorted(gradients), *saved])))
    ops = 2 * forward
    return RecomputeProblem(
        sizes=size,
        costs=cost + [2 * c for c in reversed(cost)],
        once=[False] * ops,
        scratch=[0] * ops,
        reads=reads,
        makes=[[op] for op in range(ops)],
        over=[[] for _ in range(ops)],
        parts=[[] for _ in range(ops)],
        until=[[] for _ in range(ops)],
    )
