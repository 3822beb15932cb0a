# SPDX-License-Identifier: Apache-2.0
"""What cuDNN takes for itself in a convolution, from a table of what it says itself for a described GPU.

`scripts/cudnn_workspaces.py` makes the table: convolutions of well-known networks, at many batch sizes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import log2, prod
from typing import Literal

Direction = Literal["forward", "input", "weight"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "input", "weight")


@dataclass(frozen=True)
class Convolution:
    """A convolution by its shapes, or the transposed one. Shapes of x and out begin with the batch."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    out: tuple[int, ...]
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int
    transposed: bool

    @property
    def depthwise(self) -> bool:
        """Whether PyTorch's own kernels do it, which need nothing."""
        return self.group == self.x[1] and self.group > 1 and self.weight[0] % self.group == 0 and not self.transposed

    @property
    def shape(self) -> Shape:
        """All but the batch."""
        return (
            *(self.x[1:], self.weight, self.out[1:], self.pads, self.strides, self.dilations),
            self.group,
            self.transposed,
        )

    @property
    def elements(self) -> int:
        """Of x and out."""
        return prod(self.x) + prod(self.out)


Kind = Literal["f32", "tf32", "f16", "bf16"]
Layout = Literal["", "channels_last", "most"]
"""Of which tensors a table is; or the one of the largest workspaces of all engines."""
MOST_KNOWN: tuple[Kind, ...] = ("f32",)
"""For which there is a table of the largest workspaces."""
Ints = tuple[int, ...]
Shape = tuple[Ints, Ints, Ints, Ints, Ints, Ints, int, bool]
Table = Mapping[Shape, Mapping[int, Sequence[int]]]
"""By shape and batch size: bytes of the three directions."""


class _Lines(Mapping[Shape, Mapping[int, Sequence[int]]]):
    """A table as text, a line for each shape, of which few are read."""

    def __init__(self, batches: Sequence[int], lines: Mapping[str, str]) -> None:
        self.batches, self.lines = batches, lines

    def __getitem__(self, shape: Shape) -> Mapping[int, Sequence[int]]:
        numbers = [int(number) for number in self.lines[key_of(shape)].split(",")]
        return {batch: numbers[3 * at : 3 * at + 3] for at, batch in enumerate(self.batches)}

    def __iter__(self) -> Iterator[Shape]:
        for key in self.lines:
            *lists, group, transposed = key.split(";")
            x, weight, out, pads, strides, dilations = (tuple(map(int, each.split(","))) for each in lists)
            yield x, weight, out, pads, strides, dilations, int(group), transposed == "1"

    def __len__(self) -> int:
        return len(self.lines)


def key_of(shape: Shape) -> str:
    """The shape as text, in a table's lines."""
    *lists, group, transposed = shape
    return ";".join([*(",".join(map(str, each)) for each in lists), str(group), str(int(transposed))])


@cache
def table(kind: Kind, layout: Layout = "") -> Table:
    """Of cuDNN 9.19 for an H200: in f32, with products in TF32 or without, or in 16 bits. The file's first line has the batch sizes, others
    a shape, and three numbers of bytes for each batch size."""
    name = f"cudnn_9_19_sm90_{kind}{layout and '_'}{layout}.txt.gz"
    first, *rest = gzip.decompress((files("memc.estimation") / "data" / name).read_bytes()).decode().split("\n")
    return _Lines([int(batch) for batch in first.split(",")], dict(line.split(" ") for line in rest if line))


SPLIT_BYTES = 132 * 128 * 128 * 4
"""Of an H200's processors, with tiles of 128 x 128 numbers of f32."""
PLAIN_BYTES = 2**20
"""Workspaces up to which no operand is copied into another layout."""


@dataclass
class Workspaces:
    """Bytes by what is computed."""

    known: Table
    limit: int | None = None
    """Bytes above which an algorithm is not used."""
    tensor_cores: bool = False
    """Whether convolutions run on them, where what a device chooses can differ from what cuDNN says without one."""
    split_sums: bool = False
    """Whether gradients of weights are sums of parts there: a tile of SPLIT_BYTES for each processor, as the devices' choices had them."""
    most: Table = field(default_factory=dict)
    """The largest workspaces of all engines, where cuDNN tries them."""
    tried: set[tuple[Direction, Convolution]] = field(default_factory=set)
    guessed: dict[Shape, bool] = field(default_factory=dict)
    """Convolutions that the table lacks, and whether their shape was taken from a similar one, rather than the batch size."""

    def bytes(self, direction: Direction, convolution: Convolution) -> int:
        """Of one call; what would take more than the limit is done by an algorithm without a workspace."""
        found = self._bytes(direction, convolution)
        if self.split_sums and direction == "weight" and found > PLAIN_BYTES:
            found += SPLIT_BYTES
        return 0 if self.limit is not None and found > self.limit else found

    def trial(self, direction: Direction, convolution: Convolution) -> int:
        """Bytes with which all engines are tried, in the first call of a convolution where cuDNN does so; 0 for no trial."""
        if not self.most or convolution.depthwise or (direction, convolution) in self.tried:
            return 0
        self.tried.add((direction, convolution))
        largest = replace(self, known=self.most).bytes(direction, convolution)
        return max(largest, self.bytes(direction, convolution))

    def _bytes(self, direction: Direction, convolution: Convolution) -> int:
        """Of one call: what the table says; for another batch size what its neighbours need for each item, whichever is more; for
        another shape what the most similar one needs for each element."""
        if convolution.depthwise:
            return 0
        at, batch, shape = DIRECTIONS.index(direction), convolution.x[0], convolution.shape
        rows = self.known.get(shape)
        if rows is not None:
            if batch not in rows:
                self.guessed[shape] = False
            return _scaled(rows, at, batch)
        self.guessed[shape] = True
        similar = self._similar(convolution)
        if similar is None:
            return 0
        elements = prod(similar[0]) + prod(similar[2])
        return int(_scaled(self.known[similar], at, batch) * convolution.elements / (batch * elements))

    def _similar(self, convolution: Convolution) -> Shape | None:
        """The known shape nearest in channels and sizes, of the same kernel, strides and grouping."""

        def kind(shape: Shape) -> tuple[object, ...]:
            return shape[1][2:], shape[4], shape[5], shape[6] > 1, shape[7]

        def features(shape: Shape) -> list[float]:
            return [log2(max(1, n)) for n in (shape[0][0], shape[2][0], prod(shape[0][1:]) ** 0.5)]

        wanted, mine = kind(convolution.shape), features(convolution.shape)
        alike = (shape for shape in self.known if kind(shape) == wanted)
        return min(alike, key=lambda shape: sum((a - b) ** 2 for a, b in zip(features(shape), mine)), default=None)


def _scaled(rows: Mapping[int, Sequence[int]], at: int, batch: int) -> int:
    """Bytes at this batch size, from those of the nearest."""
    if batch in rows:
        return rows[batch][at]
    below = max((each for each in rows if each < batch), default=min(rows))
    above = min((each for each in rows if each > batch), default=below)
    return max(rows[near][at] * batch // near for near in (below, above))
