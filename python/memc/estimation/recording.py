# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's allocator did in a job, as it records it itself: actions with addresses, made into events."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memc.ir.errors import InvalidError
from memc.ir.messages import shown

from .allocators import Allocator
from .events import EventList, Events, Origin

MOST_BYTES = 2**60
MOST_ADDRESS = 2**63 - 1


@dataclass(frozen=True)
class Action:
    """One entry of a recording."""

    name: str
    address: int
    nbytes: int
    stream: int
    pool: int = 0
    origin: Origin | None = None


@dataclass(frozen=True)
class Recording:
    """A job's events, and what is known of how they were recorded."""

    events: Events
    alloc_conf: str = ""
    """The settings at the time, as PYTORCH_CUDA_ALLOC_CONF has them."""
    maps: tuple[int, ...] = ()
    """Addresses at which pages were mapped, in order."""
    segments: tuple[int, ...] = ()
    """Addresses of segments, in order."""
    addresses: tuple[int, ...] = ()
    """Of each request, in order; empty if they are not known."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """What PyTorch counted, in bytes: `allocated`, `requested`, `reserved`, and perhaps more."""
    partial: str = ""
    """Why the events are not all that happened since the process began; empty if they are."""
    inference: bool = False
    """Whether the job is known not to train."""
    allocator: Allocator | None = None
    """Of the framework that a model is of; None for what `alloc_conf` says of PyTorch's."""
    modelled: tuple[str, ...] = ()
    """What is taken to be so, where a model of the framework made the events; empty if they were recorded."""
    assumed: tuple[str, ...] = ()
    """What else is taken to be so."""
    outside: int | None = None
    """Bytes of the device outside the allocator; None where only the GPU's usual ones are known."""
    nccl: int = 0
    """Of these, bytes that NCCL takes."""
    others: tuple[Events, ...] = ()
    """Of a model: events of other readings of it."""
    places_known: bool = True
    """Whether the addresses are those that a device would give, on which what is reserved may depend."""
    torch_version: str = ""
    """Of the PyTorch that asked; empty if it is not known."""

    def segment_addresses(self, device_total: int) -> list[int]:
        """Where the allocator's segments lie, in the order in which it makes them. With expandable segments, the first page of
        each, which reserves an eighth more than the device has."""
        if not self.maps:
            return list(self.segments)
        reach = device_total + device_total // 8
        bases: list[int] = []
        for address in self.maps:
            if not any(base <= address < base + reach for base in bases):
                bases.append(address)
        return bases


class _Recorder:
    """Makes events of actions, one after another."""

    def __init__(self, source: str, partial: bool) -> None:
        self.source = source
        self.partial = partial
        self.events = EventList()
        self.live: dict[int, int] = {}
        """Blocks by address; `requested` those that were given back."""
        self.requested: dict[int, int] = {}
        self._starts: list[int] = []
        """Addresses of blocks that are in use, in order; `_ends` where each ends."""
        self._ends: dict[int, int] = {}
        self.addresses: list[int] = []
        self.skipped = 0
        self.ran_out: Action | None = None
        self._releasing = False

    def add(self, at: int, action: Action, then: Action | None) -> None:
        """`then`: the action after this one."""
        name = action.name
        if name in ("segment_free", "segment_unmap"):
            if not self._releasing:
                self.events.empty_cache()
            self._releasing = True
            return
        self._releasing = False
        if name == "alloc":
            self.allocate(at, action)
            self.ran_out = None
        elif name in ("free", "free_requested"):
            self._free(at, action, name == "free" or _completes(then, action))
        elif name == "free_completed" and action.address in self.requested:
            self._vacate(action.address)
            self.events.complete_free(self.requested.pop(action.address))
        elif name == "oom":
            self.ran_out = action

    def allocate(self, at: int, action: Action) -> None:
        if action.address in self.live or action.address in self.requested:
            raise InvalidError(
                f"{self.source}: event {at}: allocates address {action.address}, which is in use since an earlier event"
            )
        self._occupy(at, action)
        block = self.events.allocate(action.nbytes, action.stream, action.pool, action.origin)
        self.live[action.address] = block
        self.addresses.append(action.address)

    def _occupy(self, at: int, action: Action) -> None:
        """Refuses blocks that share bytes, which no allocator hands out."""
        if action.nbytes == 0:
            return
        place = bisect_left(self._starts, action.address)
        near = [self._starts[n] for n in (place - 1, place) if 0 <= n < len(self._starts)]
        end = action.address + action.nbytes
        for start in near:
            if start < end and action.address < self._ends[start]:
                raise InvalidError(
                    f"{self.source}: event {at}: allocates {action.nbytes} bytes at address {action.address}, of which a block at "
                    f"address {start} has some, which is in use since an earlier event"
                )
        self._starts.insert(place, action.address)
        self._ends[action.address] = end

    def _vacate(self, address: int) -> None:
        if self._ends.pop(address, None) is not None:
            del self._starts[bisect_left(self._starts, address)]

    def _free(self, at: int, action: Action, at_once: bool) -> None:
        block = self.live.pop(action.address, None)
        if block is None and not self.partial:
            raise InvalidError(
                f"{self.source}: event {at}: {action.name} of address {action.address}, which no earlier event allocated"
            )
        if block is None:  # From before a recording that began late.
            self.skipped += 1
        elif at_once:
            self._vacate(action.address)
            self.events.free(block, action.origin)
        else:
            self.events.request_free(block)
            self.requested[action.address] = block


def _completes(then: Action | None, action: Action) -> bool:
    return then is not None and then.name == "free_completed" and then.address == action.address


def recording_of(
    source: str,
    actions: Sequence[Action],
    *,
    before: Iterable[Action] = (),
    partial: str = "",
    alloc_conf: str = "",
    peaks: Mapping[str, int] | None = None,
) -> Recording:
    """The recording that a list of actions is.

    `before`: blocks that were live when it began. Memory that the job gave back to the device becomes an event of its own, as a
    recording does not say why: because it ran short, or was told to. Raises InvalidError naming `source` and the event.
    """
    recorder = _Recorder(source, bool(partial))
    for action in before:
        recorder.allocate(-1, action)
    for at, action in enumerate(actions):
        recorder.add(at, action, actions[at + 1] if at + 1 < len(actions) else None)
    if recorder.skipped:
        partial = f"{partial}; {recorder.skipped} frees are of blocks that no event allocated"
    if (refused := recorder.ran_out) is not None:
        recorder.events.allocate(refused.nbytes, refused.stream, refused.pool, refused.origin)
        note = f"the job ended with a request of {refused.nbytes:,} bytes that was refused, which is counted as if it had been granted"
        partial = f"{partial}; {note}" if partial else note
    return Recording(
        recorder.events.events(),
        alloc_conf,
        tuple(action.address for action in actions if action.name == "segment_map"),
        tuple(action.address for action in actions if action.name == "segment_alloc"),
        tuple(recorder.addresses),
        peaks or {},
        partial,
    )


NAMES = (
    *("alloc", "free", "free_requested", "free_completed", "oom", "snapshot", "user_defined"),
    *("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
)
"""Of the actions that PyTorch records."""


def whole_number(value: object, least: int, most: int, where: str) -> int:
    """The number, if it is a whole one within the bounds. Raises InvalidError."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidError(f"{where}: expected a whole number from {least} to {most}, got {shown(value)}")
    return value


def known_name(value: object, where: str) -> str:
    """The name of an action. Raises InvalidError."""
    if not isinstance(value, str) or value not in NAMES:
        raise InvalidError(f"{where}: expected an action among {', '.join(NAMES)}, got {shown(value)}")
    return value
