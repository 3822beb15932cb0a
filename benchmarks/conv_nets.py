# SPDX-License-Identifier: Apache-2.0
"""Convolutional networks that no file here holds, written from their public architectures with seeded weights: as ONNX for
memc, and as modules for PyTorch where torchvision has none.

R3D-18 (Tran et al. 2018, with torchvision's widths), Inception-v4 (Szegedy et al. 2016), MnasNet 1.0 (Tan et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import onnx
from onnx import TensorProto
from training_models import Net

CLASSES = {"r3d_18": 400, "inception_v4": 1000, "mnasnet1_0": 1000}
SIZES = {"r3d_18": (3, 16, 112, 112), "inception_v4": (3, 299, 299), "mnasnet1_0": (3, 224, 224)}
"""Of one image."""

Extents = int | tuple[int, ...]


class Layers(Protocol):
    """What the networks are written with; tensors are names or numbers of a network being built."""

    rank: int

    def conv(
        self, x: Any, inner: int, outer: int, kernel: Extents, stride: Extents, pad: Extents, group: int, relu: bool
    ) -> Any: ...
    def add_relu(self, a: Any, b: Any, relu: bool) -> Any: ...
    def max_pool(self, x: Any) -> Any: ...
    def mean_pool(self, x: Any) -> Any: ...
    def concat(self, parts: Sequence[Any]) -> Any: ...
    def classify(self, x: Any, inner: int, classes: int) -> Any: ...


def extents(value: Extents, rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else list(value)


class OnnxLayers:
    """The layers as nodes of an ONNX graph."""

    def __init__(self, net: Net, rank: int) -> None:
        self.net, self.rank = net, rank

    def conv(
        self, x: str, inner: int, outer: int, kernel: Extents, stride: Extents, pad: Extents, group: int, relu: bool
    ) -> str:
        sizes = extents(kernel, self.rank)
        attrs = {"strides": extents(stride, self.rank), "pads": extents(pad, self.rank) * 2, "group": group}
        weight = self.net.weight(outer, inner // group, *sizes)
        y = self.net.norm(self.net.op("Conv", x, weight, kernel_shape=sizes, **attrs), outer)
        return self.net.op("Relu", y) if relu else y

    def add_relu(self, a: str, b: str, relu: bool) -> str:
        total = self.net.op("Add", a, b)
        return self.net.op("Relu", total) if relu else total

    def max_pool(self, x: str) -> str:
        return self.net.op("MaxPool", x, kernel_shape=[3] * self.rank, strides=[2] * self.rank)

    def mean_pool(self, x: str) -> str:
        return self.net.op("AveragePool", x, kernel_shape=[3] * self.rank, pads=[1] * 2 * self.rank)

    def concat(self, parts: Sequence[str]) -> str:
        return self.net.op("Concat", *parts, axis=1)

    def classify(self, x: str, inner: int, classes: int) -> str:
        return self.net.linear(self.net.op("Flatten", self.net.op("GlobalAveragePool", x)), inner, classes)


def r3d_18(b: Layers, x: Any) -> Any:
    x = b.conv(x, 3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), 1, True)
    inner = 64
    for number, outer in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if number > 0 and block == 0 else 1
            y = b.conv(x, inner, outer, 3, stride, 1, 1, True)
            y = b.conv(y, outer, outer, 3, 1, 1, 1, False)
            x = b.add_relu(y, b.conv(x, inner, outer, 1, stride, 0, 1, False) if stride > 1 else x, True)
            inner = outer
    return b.classify(x, inner, CLASSES["r3d_18"])


def mnasnet1_0(b: Layers, x: Any) -> Any:
    x = b.conv(x, 3, 32, 3, 2, 1, 1, True)
    x = b.conv(x, 32, 32, 3, 1, 1, 32, True)
    x = b.conv(x, 32, 16, 1, 1, 0, 1, False)
    inner = 16
    stacks = (
        (24, 3, 2, 3, 3),
        (40, 5, 2, 3, 3),
        (80, 5, 2, 6, 3),
        (96, 3, 1, 6, 2),
        (192, 5, 2, 6, 4),
        (320, 3, 1, 6, 1),
    )
    for outer, kernel, first, factor, repeats in stacks:
        for number in range(repeats):
            stride = first if number == 0 else 1
            middle = inner * factor
            y = b.conv(x, inner, middle, 1, 1, 0, 1, True)
            y = b.conv(y, middle, middle, kernel, stride, kernel // 2, middle, True)
            y = b.conv(y, middle, outer, 1, 1, 0, 1, False)
            x = b.add_relu(y, x, False) if number > 0 else y
            inner = outer
    x = b.conv(x, inner, 1280, 1, 1, 0, 1, True)
    return b.classify(x, 1280, CLASSES["mnasnet1_0"])


def inception_v4(b: Layers, x: Any) -> Any:
    def conv(x: Any, inner: int, outer: int, kernel: Extents = 1, stride: int = 1, pad: Extents = 0) -> Any:
        return b.conv(x, inner, outer, kernel, stride, pad, 1, True)

    def across(x: Any, inner: int, outer: int, size: int) -> Any:
        return conv(x, inner, outer, (1, size), 1, (0, size // 2))

    def down(x: Any, inner: int, outer: int, size: int) -> Any:
        return conv(x, inner, outer, (size, 1), 1, (size // 2, 0))

    x = conv(conv(conv(x, 3, 32, 3, 2), 32, 32, 3), 32, 64, 3, 1, 1)
    x = b.concat([b.max_pool(x), conv(x, 64, 96, 3, 2)])
    left = conv(conv(x, 160, 64), 64, 96, 3)
    right = conv(down(across(conv(x, 160, 64), 64, 64, 7), 64, 64, 7), 64, 96, 3)
    x = b.concat([left, right])
    x = b.concat([conv(x, 192, 192, 3, 2), b.max_pool(x)])
    for _ in range(4):
        second = conv(conv(x, 384, 64), 64, 96, 3, 1, 1)
        third = conv(conv(conv(x, 384, 64), 64, 96, 3, 1, 1), 96, 96, 3, 1, 1)
        x = b.concat([conv(x, 384, 96), second, third, conv(b.mean_pool(x), 384, 96)])
    right = conv(conv(conv(x, 384, 192), 192, 224, 3, 1, 1), 224, 256, 3, 2)
    x = b.concat([conv(x, 384, 384, 3, 2), right, b.max_pool(x)])
    for _ in range(7):
        second = down(across(conv(x, 1024, 192), 192, 224, 7), 224, 256, 7)
        third = across(down(conv(x, 1024, 192), 192, 192, 7), 192, 224, 7)
        third = across(down(third, 224, 224, 7), 224, 256, 7)
        x = b.concat([conv(x, 1024, 384), second, third, conv(b.mean_pool(x), 1024, 128)])
    left = conv(conv(x, 1024, 192), 192, 192, 3, 2)
    right = conv(down(across(conv(x, 1024, 256), 256, 256, 7), 256, 320, 7), 320, 320, 3, 2)
    x = b.concat([left, right, b.max_pool(x)])
    for _ in range(3):
        half = conv(x, 1536, 384)
        third = across(down(conv(x, 1536, 384), 384, 448, 3), 448, 512, 3)
        parts = [conv(x, 1536, 256), across(half, 384, 256, 3), down(half, 384, 256, 3)]
        parts += [across(third, 512, 256, 3), down(third, 512, 256, 3)]
        x = b.concat([*parts, conv(b.mean_pool(x), 1536, 256)])
    return b.classify(x, 1536, CLASSES["inception_v4"])


NETWORKS: dict[str, Callable[[Any, Any], Any]] = {
    "r3d_18": r3d_18,
    "inception_v4": inception_v4,
    "mnasnet1_0": mnasnet1_0,
}


def write(stem: str, folder: Path) -> Path:
    """The network's file in `folder`, written unless it is there; its input is `x`, its result `logits`."""
    path = folder / f"{stem}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        net, size = Net(), SIZES[stem]
        logits = NETWORKS[stem](OnnxLayers(net, len(size) - 1), "x")
        partial = path.with_suffix(".part")
        onnx.save(net.model(logits, list(size), TensorProto.FLOAT, CLASSES[stem]), str(partial))
        partial.replace(path)
    return path
