# SPDX-License-Identifier: Apache-2.0
"""The networks that benchmarks write from their architectures have as many parameters as the published ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import conv_nets


class Counted:
    """Layers that count parameters; a tensor is its number of channels."""

    def __init__(self, rank: int) -> None:
        self.rank, self.parameters = rank, 0

    def conv(
        self,
        x: int,
        inner: int,
        outer: int,
        kernel: conv_nets.Extents,
        stride: conv_nets.Extents,
        pad: conv_nets.Extents,
        group: int,
        relu: bool,
    ) -> int:
        assert x == inner
        self.parameters += outer * inner // group * math.prod(conv_nets.extents(kernel, self.rank)) + 2 * outer
        return outer

    def add_relu(self, a: int, b: int, relu: bool) -> int:
        assert a == b
        return a

    def max_pool(self, x: int) -> int:
        return x

    def mean_pool(self, x: int) -> int:
        return x

    def concat(self, parts: Sequence[int]) -> int:
        return sum(parts)

    def classify(self, x: int, inner: int, classes: int) -> int:
        assert x == inner
        self.parameters += inner * classes + classes
        return classes


@pytest.mark.parametrize(
    ("stem", "parameters"), [("r3d_18", 33_371_472), ("mnasnet1_0", 4_383_312), ("inception_v4", 42_679_816)]
)
def test_parameters(stem: str, parameters: int) -> None:
    size = conv_nets.SIZES[stem]
    layers = Counted(len(size) - 1)
    assert conv_nets.NETWORKS[stem](layers, size[0]) == conv_nets.CLASSES[stem]
    assert layers.parameters == parameters
