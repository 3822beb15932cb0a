# SPDX-License-Identifier: Apache-2.0
"""Networks on which Dymem (Yang and Cheng 2020) is evaluated and of which there is no shared model.

The paper names CIFAR-10, whose planes of 32 x 32 could not give the bytes that it reports; inputs here are 224 x 224 and 299 x 299, as the
sources that its baselines come from take them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
from onnx import TensorProto
from training_models import Net

CLASSES = 1000

Size = tuple[int, int]


def conv(
    net: Net, x: str, inner: int, outer: int, size: Size, stride: int = 1, same: bool = True, norm: bool = True
) -> str:
    """A convolution and ReLU, with batch norm between unless there is a bias instead; `same` keeps the plane, but for the stride."""
    pads = [(n - 1) // 2 if same else 0 for n in size] * 2
    bias = [] if norm else [net.weight(outer)]
    h = net.op("Conv", x, net.weight(outer, inner, *size), *bias, pads=pads, strides=[stride] * 2)
    return net.op("Relu", net.norm(h, outer) if norm else h)


def pool(net: Net, x: str, kind: str = "MaxPool", stride: int = 2) -> str:
    pads = [0] * 4 if stride == 2 else [1] * 4
    return net.op(kind, x, kernel_shape=[3, 3], strides=[stride] * 2, pads=pads)


def scores(net: Net, x: str, channels: int, plane: int) -> onnx.ModelProto:
    flat = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.linear(flat, channels, CLASSES), [3, plane, plane], TensorProto.FLOAT, CLASSES)


def resnet_32() -> onnx.ModelProto:
    """Three stages of five residual blocks of two 3 x 3 convolutions without batch norm, of 16, 32 and 64 channels, on 224 x 224.

    Each block has a ReLU between its convolutions and one after the join; a 1 x 1 convolution joins stages.
    """
    net = Net()
    h, inner = conv(net, "x", 3, 16, (3, 3), norm=False), 16
    for outer in (16, 32, 64):
        for block in range(5):
            stride = 2 if block == 0 and outer != 16 else 1
            deep = conv(net, h, inner, outer, (3, 3), stride, norm=False)
            deep = net.op("Conv", deep, net.weight(outer, outer, 3, 3), net.weight(outer), pads=[1] * 4)
            short = h if stride == 1 else net.op("Conv", h, net.weight(outer, inner, 1, 1), strides=[2, 2])
            h, inner = net.op("Relu", net.op("Add", deep, short)), outer
    return scores(net, h, 64, 224)


def resnet_101() -> onnx.ModelProto:
    """Bottleneck blocks (He et al. 2015): 3, 4, 23 and 3 of them, on 224 x 224."""
    net = Net()
    h = conv(net, "x", 3, 64, (7, 7), 2)
    h, inner = net.op("MaxPool", h, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for width, blocks, stage_stride in ((64, 3, 1), (128, 4, 2), (256, 23, 2), (512, 3, 2)):
        for block in range(blocks):
            stride, outer = stage_stride if block == 0 else 1, 4 * width
            deep = conv(net, conv(net, h, inner, width, (1, 1)), width, width, (3, 3), stride)
            deep = net.norm(net.op("Conv", deep, net.weight(outer, width, 1, 1)), outer)
            short = h
            if block == 0:
                short = net.norm(net.op("Conv", h, net.weight(outer, inner, 1, 1), strides=[stride] * 2), outer)
            h, inner = net.op("Relu", net.op("Add", deep, short)), outer
    return scores(net, h, inner, 224)


Branch = Sequence[tuple[int, Size]]


def branches(net: Net, x: str, inner: int, *ways: Branch) -> list[str]:
    """Convolutions one after another, for each way."""
    found = []
    for way in ways:
        h, channels = x, inner
        for outer, size in way:
            h, channels = conv(net, h, channels, outer, size), outer
        found.append(h)
    return found


ONE, THREE, WIDE, TALL = (1, 1), (3, 3), (1, 7), (7, 1)


def stem(net: Net) -> str:
    """Of Inception-v4: 3 x 299 x 299 to 384 x 35 x 35."""
    h = conv(net, "x", 3, 32, THREE, 2, same=False)
    h = conv(net, conv(net, h, 32, 32, THREE, same=False), 32, 64, THREE)
    h = net.op("Concat", pool(net, h), conv(net, h, 64, 96, THREE, 2, same=False), axis=1)
    a, b = branches(net, h, 160, [(64, ONE)], [(64, ONE), (64, WIDE), (64, TALL)])
    ways = [conv(net, way, 64, 96, THREE, same=False) for way in (a, b)]
    h = net.op("Concat", *ways, axis=1)
    return net.op("Concat", conv(net, h, 192, 192, THREE, 2, same=False), pool(net, h), axis=1)


def inception_v4() -> onnx.ModelProto:
    """Szegedy et al. 2016: 4, 7 and 3 blocks between reductions, on 299 x 299."""
    net = Net()
    h = stem(net)
    for _ in range(4):
        ways = branches(net, h, 384, [(96, ONE)], [(64, ONE), (96, THREE)], [(64, ONE), (96, THREE), (96, THREE)])
        pooled = conv(net, pool(net, h, "AveragePool", 1), 384, 96, ONE)
        h = net.op("Concat", pooled, *ways, axis=1)
    (deep,) = branches(net, h, 384, [(192, ONE), (224, THREE)])
    ways = [conv(net, h, 384, 384, THREE, 2, same=False), conv(net, deep, 224, 256, THREE, 2, same=False)]
    h = net.op("Concat", pool(net, h), *ways, axis=1)
    for _ in range(7):
        ways = branches(
            net,
            h,
            1024,
            [(384, ONE)],
            [(192, ONE), (224, WIDE), (256, TALL)],
            [(192, ONE), (192, TALL), (224, WIDE), (224, TALL), (256, WIDE)],
        )
        pooled = conv(net, pool(net, h, "AveragePool", 1), 1024, 128, ONE)
        h = net.op("Concat", pooled, *ways, axis=1)
    a, b = branches(net, h, 1024, [(192, ONE)], [(256, ONE), (256, WIDE), (320, TALL)])
    ways = [conv(net, a, 192, 192, THREE, 2, same=False), conv(net, b, 320, 320, THREE, 2, same=False)]
    h = net.op("Concat", pool(net, h), *ways, axis=1)
    for _ in range(3):
        one, a, b = branches(net, h, 1536, [(256, ONE)], [(384, ONE)], [(384, ONE), (448, (1, 3)), (512, (3, 1))])
        pairs = [conv(net, way, width, 256, size) for way, width in ((a, 384), (b, 512)) for size in ((1, 3), (3, 1))]
        pooled = conv(net, pool(net, h, "AveragePool", 1), 1536, 256, ONE)
        h = net.op("Concat", pooled, one, *pairs, axis=1)
    return scores(net, h, 1536, 299)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet_32": resnet_32,
    "resnet_101": resnet_101,
    "inception_v4": inception_v4,
}
