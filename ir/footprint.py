# SPDX-License-Identifier: Apache-2.0
"""What a program takes of memory: bytes by space and kind. Every report, budget, statistic and JSON counts with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .spaces import ARENA, HOST, IO, DeviceId

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
    device: DeviceId | None
    """None for problems of others, which name no devices."""
    bytes: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    """By kind. Weights (constants among them) and states, and inputs and outputs, are parts of `bytes`; of values, which take
    turns, each kind says what the largest takes."""
    lower_bound: int | None = None
    """The largest live set, which no addresses can be below in this order of ops; None where bytes do not take turns."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        device = None if self.device is None else str(self.device)
        found = {"name": self.name, "device": device, "bytes": self.bytes, "kinds": dict(self.kinds)}
        return {**found, "lower_bound": self.lower_bound}


@dataclass(frozen=True)
class Footprint:
    """What a program takes, space by space."""

    spaces: tuple[SpaceFootprint, ...]
    device: DeviceId | None
    """The device that runs the kernels."""

    def __getitem__(self, name: str) -> int:
        """Bytes of the space of that name; 0 if there is none."""
        return next((space.bytes for space in self.spaces if space.name == name), 0)

    def kind(self, name: str) -> int:
        """Bytes of a kind, over all spaces."""
        return sum(space.kinds.get(name, 0) for space in self.spaces)

    def on(self, device: DeviceId | None) -> int:
        """Bytes of all spaces on a device."""
        return sum(space.bytes for space in self.spaces if space.device == device)

    @property
    def peak(self) -> int:
        """Bytes on the device that runs the kernels: what memory budgets are about. The space `host` has a budget of its own, and
        does not count even where the host runs the kernels."""
        return sum(space.bytes for space in self.spaces if space.device == self.device and space.name != HOST)

    @property
    def lower_bound(self) -> int:
        """The sum of the spaces' lower bounds: bytes that no addresses are below."""
        return sum(space.lower_bound or 0 for space in self.spaces)

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
