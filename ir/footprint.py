# SPDX-License-Identifier: Apache-2.0
"""What a program takes of memory: bytes by space and kind. Every report, budget, statistic and JSON counts with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .core import Function, Role, Value
from .liveness import align, lifetimes, lower_bound, space_bytes, updates_state
from .spaces import ARENA, IO, WEIGHTS, DeviceId, Space
from .target import Target

WORKSPACE = "workspace"
"""The kind of scratch bytes of library kernels: of a space that holds values, the largest that one op has."""

FIXED, STATES = "weights", "states"
"""The kinds of what lies in spaces of weights: weights and constants, and what runs update."""

INPUTS, OUTPUTS = "inputs", "outputs"
"""The kinds of the caller's tensors."""


@dataclass(frozen=True)
class SpaceFootprint:
    """What one space takes. All figures are in bytes."""

    name: str
    device: DeviceId
    bytes: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    """By kind. Weights (constants among them) and states, and inputs and outputs, are parts of `bytes`; of values, which take
    turns, each kind says what the largest takes."""
    lower_bound: int | None = None
    """The largest live set, which no addresses can be below in this order of ops; None where bytes do not take turns."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = {"name": self.name, "device": str(self.device), "bytes": self.bytes, "kinds": dict(self.kinds)}
        return {**found, "lower_bound": self.lower_bound}


@dataclass(frozen=True)
class Footprint:
    """What a program takes, space by space."""

    spaces: tuple[SpaceFootprint, ...]
    device: DeviceId
    """The device that runs the kernels."""

    def __getitem__(self, name: str) -> int:
        """Bytes of the space of that name; 0 if there is none."""
        return next((space.bytes for space in self.spaces if space.name == name), 0)

    def kind(self, name: str) -> int:
        """Bytes of a kind, over all spaces."""
        return sum(space.kinds.get(name, 0) for space in self.spaces)

    def on(self, device: DeviceId) -> int:
        """Bytes of all spaces on a device."""
        return sum(space.bytes for space in self.spaces if space.device == device)

    @property
    def peak(self) -> int:
        """Bytes on the device that runs the kernels: what memory budgets are about."""
        return self.on(self.device)

    @property
    def arena(self) -> SpaceFootprint:
        """The space of results and workspaces."""
        return next(space for space in self.spaces if space.name == ARENA)

    def with_bytes(self, name: str, nbytes: int) -> Footprint:
        """This footprint with `nbytes` bytes in one space, and nothing more said of that."""
        spaces = (replace(s, bytes=nbytes, kinds={}, lower_bound=None) if s.name == name else s for s in self.spaces)
        return replace(self, spaces=tuple(spaces))

    def only(self, *names: str) -> Footprint:
        """These spaces alone."""
        return replace(self, spaces=tuple(space for space in self.spaces if space.name in names))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"peak": self.peak, "spaces": [space.to_dict() for space in self.spaces]}

    def text(self, size: Callable[[int], str] = str) -> str:
        """The spaces on the device that runs the kernels with their bytes, for messages. `size` writes a number of bytes."""
        here = (space for space in self.spaces if space.device == self.device)
        return ", ".join(f"{_TITLES.get(space.name, space.name)} {size(space.bytes)}" for space in here)


_TITLES = {IO: "inputs and outputs"}


def footprint_of(function: Function, target: Target) -> Footprint:
    """What a function takes as it is placed."""
    return Footprint(tuple(_of_space(function, space, target.alignment) for space in target.spaces), target.device)


def _of_space(function: Function, space: Space, alignment: int) -> SpaceFootprint:
    if space.holds == "values":
        lives = lifetimes(function, space.name)
        roots = {life.root for life in lives}
        scratch = (op.workspace for op in function.ops if op.workspace is not None and op.workspace in roots)
        kinds = {WORKSPACE: max((value.type.nbytes for value in scratch), default=0)}
        nbytes, bound = space_bytes(function, space.name, alignment), lower_bound(lives, alignment)
        return SpaceFootprint(space.name, space.device, nbytes, kinds, bound)
    kinds = _weight_kinds(function, alignment) if space.holds == "weights" else _io_kinds(function)
    kinds = kinds if space.name in (WEIGHTS, IO) else dict.fromkeys(kinds, 0)
    return SpaceFootprint(space.name, space.device, sum(kinds.values()), kinds)


def _weight_kinds(function: Function, alignment: int) -> dict[str, int]:
    """Bytes of the weight slab, each tensor rounded up to `alignment`."""

    def total(values: Iterable[Value]) -> int:
        return sum(align(value.type.nbytes, alignment) for value in values)

    constants = [op.result for op in function.ops if op.name == "constant"]
    return {
        FIXED: total([*function.params_of(Role.WEIGHT), *constants]),
        STATES: total(function.params_of(Role.STATE)),
    }


def _io_kinds(function: Function) -> dict[str, int]:
    """Bytes of the caller's tensors, unpadded."""
    return {
        INPUTS: sum(p.type.nbytes for p in function.params_of(Role.INPUT)),
        OUTPUTS: sum(v.type.nbytes for v in function.returns if not updates_state(v)),
    }
