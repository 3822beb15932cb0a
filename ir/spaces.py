# SPDX-License-Identifier: Apache-2.0
"""Memory spaces, the devices that they lie on, and the links between these: what a target has of each, as data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, Optional

from .checked_options import Amount, Checked, Range
from .errors import UsageError

ARENA = "arena"
"""The space of results and workspaces."""

WEIGHTS = "weights"
"""The space of weights, constants and states."""

IO = "io"
"""The space of the caller's inputs and outputs."""

HOST = "host"
"""The space of copies of values, and of weights and states that are copied from there where they are needed."""

BUFFER = "buffer."
"""What names of shared buffers begin with, which are spaces of their own until the arena is laid out."""

DeviceKind = Literal["cpu", "cuda", "cuda_host"]
"""As DLPack names them; `cuda_host` is memory of the host that is pinned for copies."""

Holds = Literal["values", "weights", "io"]


@dataclass(frozen=True)
class DeviceId(Checked):
    """A device by its kind and number, written as `cuda:0`."""

    kind: DeviceKind
    index: Amount = 0

    def owner(self) -> str:
        """What messages call it."""
        return "device"

    @staticmethod
    def parse(text: str) -> DeviceId:
        """The device that `text` names. Raises ValueError saying what was expected."""
        found = re.fullmatch(r"(cpu|cuda|cuda_host):(\d{1,4})", text, re.ASCII)
        if found is None:
            raise ValueError("a device such as cpu:0, cuda:1 or cuda_host:0")
        return DeviceId(found.group(1), int(found.group(2)))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True)
class Space(Checked):
    """Memory that a program addresses by offsets, or, of `io`, that its caller gives."""

    name: str
    """As placements have it: `@name[offset]`."""
    device: DeviceId
    holds: Holds = "values"
    """`values`: results and workspaces at planned offsets, one storage for each executable. `weights`: weights, constants and
    states, filled from the artifact; sessions share it as far as runs do not write it. `io`: tensors of the caller, which
    nothing is allocated for."""

    def owner(self) -> str:
        """What messages call it."""
        return "space"

    def check(self) -> None:
        """Raise UsageError for a name that functions of compiled code cannot have."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", self.name, re.ASCII):
            raise UsageError(f"space: name: expected letters, digits, _ and - after a letter, got {self.name!r}")


@dataclass(frozen=True)
class Link(Checked):
    """How fast bytes move from one device's memory to another's. A link has one direction."""

    source: DeviceId
    destination: DeviceId
    bandwidth: Annotated[float, Range(above=0, what="bytes a second")]
    """Bytes a second while nothing moves the other way."""
    shared_bandwidth: Optional[Annotated[float, Range(above=0, what="bytes a second")]] = None
    """Bytes a second while the link back is busy too; None where that does not matter."""
    latency: Annotated[float, Range(least=0, what="a number of seconds")] = 0.0
    """Seconds that a copy takes beside those of its bytes."""
    sync: Annotated[float, Range(least=0, what="a number of seconds")] = 0.0
    """Seconds that a copy takes kernels: half of them where it is started, and the rest where it is waited for."""
    drag: Annotated[float, Range(least=0, what="a share")] = 0.0
    """By how much kernels are slower while bytes move, as a share."""

    def owner(self) -> str:
        """What messages call it."""
        return "link"

    def check(self) -> None:
        """Raise UsageError for a link that joins nothing, or is faster where it is shared."""
        if self.source == self.destination:
            raise UsageError(f"link: expected two devices, got {self.source} twice")
        if self.shared_bandwidth is not None and self.shared_bandwidth > self.bandwidth:
            raise UsageError(
                f"link: shared_bandwidth: expected at most the bandwidth, {self.bandwidth:g}, got {self.shared_bandwidth:g}"
            )

    def seconds(self, nbytes: int, shared: bool = False) -> float:
        """The duration of one copy; `shared`: while the link back is busy all the time."""
        rate = self.shared_bandwidth if shared and self.shared_bandwidth is not None else self.bandwidth
        return self.latency + nbytes / rate if nbytes else 0.0


def is_shared_buffer(name: str) -> bool:
    """Whether the space of a placement is a shared buffer, whose place in the arena is not known yet."""
    return name.startswith(BUFFER)


def spaces_on(device: DeviceId) -> tuple[Space, ...]:
    """The spaces that every target has, on the device that runs its kernels."""
    return (Space(ARENA, device, "values"), Space(WEIGHTS, device, "weights"), Space(IO, device, "io"))


def merged(spaces: Iterable[Space], standard: Iterable[Space]) -> tuple[Space, ...]:
    """`standard` spaces, of which `spaces` of the same name take the place, and then the others."""
    own = {space.name: space for space in spaces}
    return tuple({**{space.name: space for space in standard}, **own}.values())


def require_distinct(spaces: Iterable[Space], links: Iterable[Link]) -> None:
    """Raise UsageError for a name, or a pair of devices, that is given twice."""
    names: set[str] = set()
    for space in spaces:
        if space.name in names:
            raise UsageError(f"space {space.name}: expected each space once, got it again")
        names.add(space.name)
    pairs: set[tuple[DeviceId, DeviceId]] = set()
    for link in links:
        if (link.source, link.destination) in pairs:
            raise UsageError(f"link from {link.source} to {link.destination}: expected each link once, got it again")
        pairs.add((link.source, link.destination))
