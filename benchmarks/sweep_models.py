# SPDX-License-Identifier: Apache-2.0
"""Small models for `compile_sweep.py`: each a block of a known architecture, on planes of 7 x 7 or 8 x 8 or a few odd steps.

Such planes are what a last stage of a network for images has, where rows and channels share vector lanes and thread blocks.
All take a batch of any size and give scores [batch, 10], so that each can be trained. Weights are seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from training_models import Net

FLOAT = TensorProto.FLOAT
CLASSES = 10


def conv(
    net: Net, x: str, inner: int, outer: int, size: int = 3, *, bias: bool = False, group: int = 1, **how: int
) -> str:
    """A convolution that keeps the plane, or halves it with `stride`=2."""
    weights = [net.weight(outer, inner // group, size, size)]
    if bias:
        weights.append(net.weight(outer, scale=0.1))
    pads, stride = [size // 2] * 4, how.get("stride", 1)
    return net.op("Conv", x, *weights, pads=pads, strides=[stride, stride], group=group)


def scores(net: Net, x: str, channels: int, shape: Sequence[int]) -> onnx.ModelProto:
    """The model whose features `x` are [batch, channels, height, width]."""
    flat = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.linear(flat, channels, CLASSES), shape, FLOAT, CLASSES)


def number(net: Net, value: float) -> str:
    return net.weight(value=np.float32(value))


def silu(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Sigmoid", x))


def gelu(net: Net, x: str) -> str:
    inner = net.op("Add", net.op("Erf", net.op("Div", x, number(net, 2**0.5))), number(net, 1))
    return net.op("Mul", net.op("Mul", x, inner), number(net, 0.5))


def layer_norm(net: Net, x: str, width: int) -> str:
    return net.op("LayerNormalization", x, net.weight(value=np.ones(width)), net.weight(value=np.zeros(width)))


def batch_norm(channels: int, size: int, bias: bool) -> onnx.ModelProto:
    """Convolution, batch norm, ReLU."""
    net = Net(channels + size)
    h = net.op("Relu", net.norm(conv(net, "x", 3, channels, bias=bias), channels))
    return scores(net, h, channels, [3, size, size])


def residual() -> onnx.ModelProto:
    """Two residual blocks with batch norm on 7 x 7; the second halves the plane with a projection beside it."""
    net = Net(10)
    h = net.op("Relu", net.norm(conv(net, "x", 3, 16), 16))
    for inner, outer, stride in ((16, 16, 1), (16, 24, 2)):
        deep = net.op("Relu", net.norm(conv(net, h, inner, outer, stride=stride), outer))
        deep = net.norm(conv(net, deep, outer, outer), outer)
        short = h if stride == 1 else net.norm(conv(net, h, inner, outer, 1, stride=2), outer)
        h = net.op("Relu", net.op("Add", deep, short))
    return scores(net, h, 24, [3, 7, 7])


def inverted() -> onnx.ModelProto:
    """MobileNet's block: expansion, depthwise convolution, squeeze and excitation, hard swish, projection, on 7 x 7."""
    net = Net(11)
    h = net.norm(conv(net, "x", 3, 8), 8)
    wide = net.op("HardSwish", net.norm(conv(net, h, 8, 32, 1), 32))
    wide = net.op("HardSwish", net.norm(conv(net, wide, 32, 32, group=32), 32))
    gate = net.op("Relu", conv(net, net.op("GlobalAveragePool", wide), 32, 8, 1, bias=True))
    gate = net.op("HardSigmoid", conv(net, gate, 8, 32, 1, bias=True))
    h = net.op("Add", net.norm(conv(net, net.op("Mul", wide, gate), 32, 8, 1), 8), h)
    return scores(net, h, 8, [3, 7, 7])


def dense() -> onnx.ModelProto:
    """DenseNet's block: batch norm before each convolution, all results joined, then a transition, on 8 x 8."""
    net = Net(12)
    h, channels = conv(net, "x", 3, 8), 8
    for _ in range(3):
        new = conv(net, net.op("Relu", net.norm(h, channels)), channels, 16, 1)
        new = conv(net, net.op("Relu", net.norm(new, 16)), 16, 8)
        h, channels = net.op("Concat", h, new, axis=1), channels + 8
    h = net.op(
        "AveragePool",
        conv(net, net.op("Relu", net.norm(h, channels)), channels, 16, 1),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    return scores(net, net.op("Relu", net.norm(h, 16)), 16, [3, 8, 8])


def unet() -> onnx.ModelProto:
    """A U-Net with batch norm: 8 x 8 down to 4 x 4 and back by a transposed convolution."""
    net = Net(13)
    top = net.op("Relu", net.norm(conv(net, "x", 3, 8, bias=True), 8))
    h = net.op("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2])
    h = net.op("Relu", net.norm(conv(net, h, 8, 16, bias=True), 16))
    up = net.op("ConvTranspose", h, net.weight(16, 8, 2, 2), net.weight(8, scale=0.1), strides=[2, 2])
    h = net.op("Relu", net.norm(conv(net, net.op("Concat", up, top, axis=1), 16, 8), 8))
    return scores(net, h, 8, [3, 8, 8])


def upsampled() -> onnx.ModelProto:
    """Diffusion's block: group norm, SiLU, a shift by an embedding, nearest Resize and convolution, on 7 x 7."""
    net = Net(14)
    h = conv(net, "x", 3, 16, bias=True)
    groups = net.op("Reshape", h, net.ints(0, 4, -1))
    groups = net.op("InstanceNormalization", groups, net.weight(value=np.ones(4)), net.weight(value=np.zeros(4)))
    h = net.op("Reshape", groups, net.ints(0, 16, 7, 7))
    h = net.op("Add", net.op("Mul", h, net.weight(16, 1, 1, scale=0.5)), net.weight(16, 1, 1, scale=0.5))
    embedding = net.linear(net.op("Flatten", net.op("GlobalAveragePool", "x")), 3, 16)
    shift = net.op("Unsqueeze", silu(net, embedding), net.ints(2, 3))
    h = net.op("Add", conv(net, silu(net, h), 16, 16, bias=True), shift)
    h = net.op(
        "Resize",
        h,
        "",
        net.weight(value=np.float32([1, 1, 2, 2])),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    return scores(net, silu(net, conv(net, h, 16, 8, bias=True)), 8, [3, 7, 7])


def epilogues() -> onnx.ModelProto:
    """Convolutions whose bias, PReLU, batch norm, scale and shift are by channel, one of them transposed, on 7 x 7."""
    net = Net(15)
    h = net.op("PRelu", conv(net, "x", 3, 12, bias=True), net.weight(12, 1, 1, scale=0.2))
    h = net.norm(net.op("Relu", conv(net, h, 12, 12, bias=True)), 12)
    h = net.op(
        "ConvTranspose", h, net.weight(12, 12, 3, 3), net.weight(12, scale=0.1), strides=[2, 2], pads=[1, 1, 1, 1]
    )
    h = net.op("Add", net.op("Mul", h, net.weight(12, 1, 1)), net.weight(12, 1, 1))
    h = net.op("LeakyRelu", conv(net, h, 12, 12, 5, bias=True, group=3, stride=2), alpha=0.1)
    return scores(net, h, 12, [3, 7, 7])


def convnext() -> onnx.ModelProto:
    """ConvNeXt's block: depthwise 7 x 7, layer norm over channels, GELU, a scale by channel, on 7 x 7."""
    net = Net(16)
    h = conv(net, "x", 3, 12, 1, bias=True)
    deep = net.op("Transpose", conv(net, h, 12, 12, 7, bias=True, group=12), perm=[0, 2, 3, 1])
    deep = net.op(
        "Add", net.op("MatMul", layer_norm(net, deep, 12), net.weight(12, 48, scale=0.3)), net.weight(48, scale=0.1)
    )
    deep = net.op("Add", net.op("MatMul", gelu(net, deep), net.weight(48, 12, scale=0.15)), net.weight(12, scale=0.1))
    deep = net.op("Transpose", net.op("Mul", deep, net.weight(12, scale=0.5)), perm=[0, 3, 1, 2])
    return scores(net, net.op("Add", h, deep), 12, [3, 7, 7])


def sound() -> onnx.ModelProto:
    """1-d convolutions over 49 samples, dilated and strided, with batch norm and a gated unit."""
    net = Net(17)
    h = net.op("Conv", "x", net.weight(12, 2, 5), net.weight(12, scale=0.1), pads=[2, 2], strides=[2])
    h = net.op("Tanh", net.norm(h, 12))
    filtered = net.op("Conv", h, net.weight(12, 12, 3), dilations=[4], pads=[4, 4])
    gate = net.op("Sigmoid", net.op("Conv", h, net.weight(12, 12, 3), dilations=[4], pads=[4, 4]))
    h = net.op("Add", net.op("Mul", filtered, gate), h)
    return net.model(net.linear(net.op("ReduceMean", h, axes=[2], keepdims=0), 12, CLASSES), [2, 49], FLOAT, CLASSES)


def volume() -> onnx.ModelProto:
    """3-d convolution, batch norm and max pooling over 5 x 7 x 7."""
    net = Net(18)
    h = net.op("Conv", "x", net.weight(6, 2, 3, 3, 3), pads=[1] * 6)
    h = net.op("MaxPool", net.op("Relu", net.norm(h, 6)), kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    return scores(net, h, 6, [2, 5, 7, 7])


def lstm() -> onnx.ModelProto:
    """A bidirectional LSTM with peepholes over 5 steps of 6 numbers; the means of its hidden states decide."""
    net = Net(19)
    steps = net.op("Transpose", "x", perm=[1, 0, 2])
    given = [net.weight(2, 28, 6, scale=0.3), net.weight(2, 28, 7, scale=0.3), net.weight(2, 56, scale=0.1)]
    peepholes = ["", "", "", net.weight(2, 21, scale=0.1)]
    h = net.op("LSTM", steps, *given, *peepholes, outputs=3, hidden_size=7, direction="bidirectional")
    h = net.op("Reshape", net.op("Transpose", h, perm=[2, 0, 1, 3]), net.ints(0, 5, 14))
    return net.model(net.linear(net.op("ReduceMean", h, axes=[1], keepdims=0), 14, CLASSES), [5, 6], FLOAT, CLASSES)


def gru() -> onnx.ModelProto:
    """A GRU over 7 steps of 5 numbers, its reset gate before the product, then a plain RNN; the last state decides."""
    net = Net(20)
    steps = net.op("Transpose", "x", perm=[1, 0, 2])
    first = [net.weight(1, 24, 5, scale=0.3), net.weight(1, 24, 8, scale=0.3), net.weight(1, 48, scale=0.1)]
    h = net.op("Squeeze", net.op("GRU", steps, *first, outputs=2, hidden_size=8), net.ints(1))
    second = [net.weight(1, 9, 8, scale=0.3), net.weight(1, 9, 9, scale=0.3), net.weight(1, 18, scale=0.1)]
    net.op("RNN", h, *second, outputs=2, hidden_size=9)
    last = net.op("Squeeze", net.nodes[-1].output[1], net.ints(0))
    return net.model(net.linear(last, 9, CLASSES), [7, 5], FLOAT, CLASSES)


def attention() -> onnx.ModelProto:
    """A causal transformer block over 7 tokens of a vocabulary of 50, width 24, 3 heads."""
    net, width, heads, tokens = Net(21), 24, 3, 7
    h = net.op("Gather", net.weight(50, width, scale=0.5), "x")
    h = net.op("Add", h, net.weight(tokens, width, scale=0.1))

    def project(x: str, inner: int, outer: int) -> str:
        return net.op(
            "Add", net.op("MatMul", x, net.weight(inner, outer, scale=inner**-0.5)), net.weight(outer, scale=0.1)
        )

    def split(x: str, perm: list[int]) -> str:
        return net.op("Transpose", net.op("Reshape", x, net.ints(0, tokens, heads, width // heads)), perm=perm)

    normed = layer_norm(net, h, width)
    q, k, v = (split(project(normed, width, width), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    masked = net.op("Add", net.op("MatMul", q, k), net.weight(value=np.triu(np.full((tokens, tokens), -1e4), 1)))
    mixed = net.op("Transpose", net.op("MatMul", net.op("Softmax", masked, axis=-1), v), perm=[0, 2, 1, 3])
    h = net.op("Add", h, project(net.op("Reshape", mixed, net.ints(0, tokens, width)), width, width))
    h = net.op("Add", h, project(gelu(net, project(layer_norm(net, h, width), width, 40)), 40, width))
    pooled = net.op("ReduceMean", layer_norm(net, h, width), axes=[1], keepdims=0)
    return net.model(net.linear(pooled, width, CLASSES), [tokens], TensorProto.INT64, CLASSES)


def quantized() -> onnx.ModelProto:
    """What quantizers write: a convolution with scales by channel and a bias, then a product with two scales, on 7 x 7."""
    rng = np.random.default_rng(22)
    data = {
        "xs": np.float32(0.03), "xz": np.uint8(128), "w": rng.integers(-90, 90, (8, 3, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.005, 0.02, 8).astype(np.float32), "wz": np.zeros(8, np.int8), "ys": np.float32(0.05),
        "yz": np.uint8(3), "b": rng.integers(-400, 400, 8).astype(np.int32), "v": rng.integers(-90, 90, (8, 10)).astype(np.int8),
        "vs": np.float32(0.01), "vz": np.int8(0), "zs": np.float32(0.02), "zz": np.uint8(120),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], pads=[1] * 4),
        helper.make_node("DequantizeLinear", ["c", "ys", "yz"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "ys", "yz"], ["e"]),
        helper.make_node("QLinearMatMul", ["e", "ys", "yz", "v", "vs", "vz", "zs", "zz"], ["m"]),
        helper.make_node("DequantizeLinear", ["m", "zs", "zz"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, FLOAT, ["batch", *s]) for n, s in (("x", [3, 7, 7]), ("y", [10]))]
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in data.items()]
    graph = helper.make_graph(nodes, "quantized", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def stored_in_half() -> onnx.ModelProto:
    """A model stored in f16, as exporters write it: f32 in, Cast, convolution, Cast, Resize, Cast, convolution, Cast, f32 out."""
    net = Net(23)
    half = {"to": TensorProto.FLOAT16}

    def narrow(x: str, inner: int, outer: int) -> str:
        weights = [
            net.op("Cast", net.weight(outer, inner, 3, 3), **half),
            net.op("Cast", net.weight(outer, scale=0.1), **half),
        ]
        return net.op("Conv", x, *weights, pads=[1] * 4)

    h = net.op("Relu", narrow(net.op("Cast", "x", **half), 3, 8))
    doubled = net.weight(value=np.float32([1, 1, 2, 2]))
    h = net.op("Resize", net.op("Cast", h, to=FLOAT), "", doubled, mode="linear")
    h = net.op("Cast", net.op("Relu", narrow(net.op("Cast", h, **half), 8, 8)), to=FLOAT)
    return scores(net, h, 8, [3, 8, 8])


BUILDERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "batch_norm_7": lambda: batch_norm(32, 7, False),
    "batch_norm_8": lambda: batch_norm(8, 8, True),
    "batch_norm_wide": lambda: batch_norm(512, 7, False),
    "residual": residual,
    "inverted": inverted,
    "dense": dense,
    "unet": unet,
    "upsampled": upsampled,
    "epilogues": epilogues,
    "convnext": convnext,
    "sound": sound,
    "volume": volume,
    "lstm": lstm,
    "gru": gru,
    "attention": attention,
    "quantized": quantized,
    "stored_in_half": stored_in_half,
}
