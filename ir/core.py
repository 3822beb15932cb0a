# SPDX-License-Identifier: Apache-2.0
"""Values, ops, functions and modules: the whole of memc's intermediate representation.

SSA, static shapes, and an ordered op list per function: the list order is the execution order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union

import numpy as np
import numpy.typing as npt

from .checked_options import Checked, Range
from .data_dependent_extents import Extent
from .types import DType, TensorType

Array = npt.NDArray[Any]
"""Any numpy array."""

Attr = Union[bool, int, float, str, DType, Array, tuple["Attr", ...]]
"""An attribute. Lists are tuples; an array appears only as the value of a small constant."""


FUSED = "fused"
"""The op with a region: its body says what it computes."""

ONCE = "once"
"""The attribute, `true`, of an unregistered op that must not be recomputed, because it draws random numbers, for example."""

Index = Annotated[int, Range(least=0)]
"""A number that counts from 0."""


class Role(Enum):
    """What a function parameter is for."""

    INPUT = "input"
    """Given by the caller at each run and never written to."""
    WEIGHT = "weight"
    """Constant data held outside the text, in `Module.weights` under the parameter's name."""
    STATE = "state"
    """Persistent and updated, such as optimizer moments."""


@dataclass(frozen=True, eq=False)
class Alias:
    """The value's bytes are those of `root` from `offset` (bytes) on.

    `root` is never an alias itself. It may be defined after the value: an op that writes straight into a
    concat's slice aliases the concat's result.
    """

    root: Value
    offset: int


@dataclass(frozen=True)
class Placement:
    """Where a value lives: byte `offset` in memory space `space` (`arena`, or a shared buffer before layout)."""

    space: str
    offset: int


@dataclass(eq=False)
class Value:
    """A tensor: a parameter, an op's result, or an op's workspace. Compared by identity."""

    name: str
    """Unique in its function, without the leading %."""
    type: TensorType
    op: Op | None = None
    """The op that defines it; None for a parameter."""
    role: Role | None = None
    """Set exactly on function parameters (not on region parameters)."""
    alias: Alias | None = None
    placement: Placement | None = None

    @property
    def root(self) -> Value:
        """The value whose bytes this one uses: itself, or its alias's root."""
        return self.alias.root if self.alias else self

    @property
    def offset_in_root(self) -> int:
        """Bytes from the start of `root`."""
        return self.alias.offset if self.alias else 0

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True)
class OpPlan(Checked):
    """What planning decided about one op, apart from what the op means; a field at its default is not decided.

    No field changes what the op's results are, but for `precision`, which changes how they are rounded. Raises UsageError for a
    value that a field does not take; `verify` checks on what ops a field may be.
    """

    in_place: Optional[Index] = None
    """The operand whose bytes result 0 takes over."""
    library_kernel: Optional[str] = None
    """The symbol of the library kernel that computes the op, or the group that begins with one; None: a generated kernel."""
    precision: Optional[Literal["tf32"]] = None
    """What the library kernel rounds the factors of products to; None: it does not."""
    joint: Optional[Index] = None
    """The number of the kernel that computes this op and others in one launch: horizontal fusion."""
    lane: Optional[Index] = None
    """The op's lane in its joint kernel, which is a multi-tensor kernel."""
    rows: Optional[Index] = None
    """How many leading axes tell the rows apart in its joint kernel, which is a row-wise fusion."""
    mirror: Index = 0
    """How often the results, dropped after the forward pass, may be recomputed for gradients."""
    recompute: tuple[Index, ...] = ()
    """Which recomputation this is of what other ops have computed; empty: the first computation. Equal ops that differ in it
    are never merged."""

    def owner(self) -> str:
        """What messages call it."""
        return "plan"

    def inside(self) -> OpPlan:
        """What stays of it on an op that joins a fused group, whose kernel, bytes and launch are the group's."""
        if not self.mirror and not self.recompute:
            return UNPLANNED  # Of nearly all ops, and much quicker than checking another.
        return OpPlan(mirror=self.mirror, recompute=self.recompute)


UNPLANNED = OpPlan()
"""Nothing is decided."""


@dataclass(eq=False)
class Op:
    """One operation. `results[i].op is self` for every result, and likewise for the workspace."""

    name: str
    """A registered op's name, or a foreign one (such as `aten.convolution`), printed in quotes."""
    operands: list[Value]
    results: list[Value]
    attrs: dict[str, Attr] = field(default_factory=dict)
    """What the op means, besides its name: all that its type inference, evaluation and kernel depend on."""
    plan: OpPlan = UNPLANNED
    """What planning decided; replaced, never changed."""
    region: Block | None = None
    """The body of a fused group; its parameters stand for the operands, its returns for the results."""
    workspace: Value | None = None
    """Scratch bytes (type u8[n]) that live during this op only."""
    location: str | None = None
    """Where it came from, for messages: usually the ONNX node's name."""

    def __post_init__(self) -> None:
        for result in self.results:
            result.op = self
        if self.workspace is not None:
            self.workspace.op = self

    @property
    def result(self) -> Value:
        """The only result."""
        if len(self.results) != 1:
            raise ValueError(f"{self.name} has {len(self.results)} results, expected one")
        return self.results[0]

    def __repr__(self) -> str:
        return f"<{self.name}({', '.join('%' + v.name for v in self.operands)})>"


@dataclass(eq=False)
class Block:
    """Parameters, ops in execution order, and the values handed back."""

    params: list[Value]
    ops: list[Op] = field(default_factory=list)
    returns: list[Value] = field(default_factory=list)

    def values(self) -> Iterator[Value]:
        """Every value defined here, parameters first, in order of definition, workspaces after their op's results."""
        yield from self.params
        for op in self.ops:
            yield from op.results
            if op.workspace is not None:
                yield op.workspace

    def uses(self) -> dict[Value, list[Op]]:
        """The ops that read each value, in order; an op that reads a value twice appears twice. Returns do not count."""
        found: dict[Value, list[Op]] = {value: [] for value in self.values()}
        for op in self.ops:
            for operand in op.operands:
                found.setdefault(operand, []).append(op)
        return found

    def read_once(self) -> set[Value]:
        """The values that one op reads, once, and that are not returned."""
        return {value for value, ops in self.uses().items() if len(ops) == 1} - set(self.returns)


@dataclass(eq=False, repr=False)
class Function(Block):
    """A block with a name."""

    name: str = "main"
    result_names: list[str] = field(default_factory=list)
    """What the caller calls the results (the ONNX outputs' names); as long as `returns`, or empty."""
    extents: list[Extent] = field(default_factory=list)
    """Which results are counts, in their order. Functions with named results alone have any."""

    def __repr__(self) -> str:
        return f"<Function @{self.name} ({len(self.ops)} ops)>"

    def params_of(self, *roles: Role) -> list[Value]:
        """The parameters of any of `roles`, in their order."""
        return [p for p in self.params if p.role in roles]


def replace_all_uses(block: Block, mapping: dict[Value, Value]) -> None:
    """Make every op and return of `block` use `mapping[v]` instead of `v`. Chains are followed."""

    def final(value: Value) -> Value:
        while value in mapping:
            value = mapping[value]
        return value

    for op in block.ops:
        op.operands = [final(v) for v in op.operands]
    block.returns = [final(v) for v in block.returns]


def fresh_names(taken: Iterable[str], stem: str = "") -> Iterator[str]:
    """Names not in `taken`: 0, 1, 2 ... (or stem.0, stem.1 ...)."""
    used = set(taken)
    number = 0
    while True:
        name = f"{stem}.{number}" if stem else str(number)
        number += 1
        if name not in used:
            used.add(name)
            yield name


def is_small(array: Array, limit: int = 16) -> bool:
    """Whether a constant of this size is written inline in the text instead of kept as a weight."""
    return bool(np.size(array) <= limit)
