# SPDX-License-Identifier: Apache-2.0
"""An exported PyTorch program without PyTorch: nodes of ATen overloads, parameters and buffers with their data, and sizes that
may be symbols. `archive.py` makes it of a `.pt2` file, `exported.py` of an `ExportedProgram` in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from memc.ir.core import Array
from memc.ir.types import DType


@dataclass(frozen=True)
class Ref:
    """A value by its name."""

    name: str


@dataclass(frozen=True)
class Size:
    """A size that depends on symbols: a name, or an operation on others."""

    op: str
    """`symbol`, or the name of a sympy function such as `Mul`."""
    args: tuple[Any, ...]
    """For `symbol` its name, else sizes and integers."""


Dim = Union[int, Size]

LITERAL = "memc.literal"
"""The target of a node whose result is the array that it is given as `value`."""

Arg = Any
"""An argument: Ref, None, bool, int, float, str, DType, a Graph, or a list of such."""


@dataclass(frozen=True)
class Meta:
    """What the program says of a tensor."""

    dtype: DType | None
    """None for a type that memc has not, which `kind` names."""
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...] | None = None
    """Elements; None where they are not known."""
    kind: str = ""


@dataclass(frozen=True)
class Location:
    """Where a node comes from."""

    module: str = ""
    """The path of its module, such as `encoder.layer.0`."""
    line: str = ""
    """The user's source line, `file.py:12`."""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.module, self.line) if part)


@dataclass
class Node:
    """A call of an overload."""

    name: str
    target: str
    """Such as `aten.add.Tensor`."""
    args: dict[str, Arg]
    """By the names of the overload's schema; those left out have its defaults."""
    results: list[str | None]
    """Names of the results; None for one that is no value."""
    location: Location = Location()
    packed: bool = False
    """Whether several results go by one name, from which `operator.getitem` takes them."""


@dataclass(frozen=True)
class Input:
    """A parameter of the program."""

    name: str
    """In the graph."""
    kind: Literal["parameter", "buffer", "constant", "input", "value"]
    """`value`: a number or None that was fixed at the export."""
    target: str = ""
    """The module's name of a parameter or buffer."""
    value: Any = None
    """Of kind `value`."""


@dataclass(frozen=True)
class Output:
    """A result of the program."""

    arg: Arg
    kind: Literal["output", "buffer", "parameter", "input"] = "output"
    """What it is the new content of, if not a result of its own."""
    target: str = ""
    """Of which buffer, parameter or input."""


@dataclass
class Weight:
    """A stored tensor."""

    read: Callable[[], Array]
    key: object
    """Equal for tensors that share their bytes."""
    trained: bool
    """Whether it requires a gradient."""


@dataclass
class Graph:
    """A program, or the body of a higher-order op, which has inputs, nodes and outputs alone."""

    inputs: list[Input]
    nodes: list[Node]
    outputs: list[Output]
    metas: dict[str, Meta] = field(default_factory=dict)
    weights: Mapping[str, Weight] = field(default_factory=dict)
    """By the module's names."""
    ranges: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Of the symbols: least and greatest."""
    hints: dict[str, int] = field(default_factory=dict)
    """The symbols' values at the export."""
    result_names: list[str] = field(default_factory=list)
    """What callers call the results, where the program says so."""
    quiet: bool = False
    """Whether sizes that stay open take their hints without a warning."""
    seed: str = ""
    """The input, i64[], that seeds what is drawn at random; empty where nothing may be drawn but in a training step."""
