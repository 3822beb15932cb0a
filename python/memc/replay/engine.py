# SPDX-License-Identifier: Apache-2.0
"""The door to the engine that replays planned memory (`cpp/replay/replay.h`), and to a host that it can be rehearsed on."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from memc import native
from memc.solvers.arrays import tensor

Int64s = npt.NDArray[np.int64]


class StepMode(IntEnum):
    """What a step does."""

    PASS = 0
    """All requests are native, and none is recorded."""
    WATCH = 1
    """All requests are native and recorded."""
    REPLAY = 2
    """A plan is followed."""


class StepFindings(IntFlag):
    """What the end of a step has found."""

    NOTHING = 0
    HOT = 1
    """The key's recorded step before asked for the same bytes on the same stream classes."""
    WANTS_PLAN = 2
    """A plan of the step's key, or a new one, would pay."""
    ESCAPED = 4
    """Slots were found to outlive steps: `Engine.escaping` names them."""
    GAVE_UP = 8
    """Steps of the key pass from now on: `Engine.warning` says why."""


class Cause(IntEnum):
    """Why a request was not served by the slot planned for it. All but the last two are served natively."""

    UNPLANNED = 0
    LARGER = 1
    PAST_END = 2
    BUSY = 3
    STREAM = 4
    EVENT_FAILED = 5
    NO_ARENA = 6
    OUT_OF_ORDER = 7
    SMALLER = 8


@dataclass(frozen=True)
class FirstRequest:
    """The first request that a cause befell."""

    step: int
    """From 1 on; 0 if there was none."""
    request: int
    """Its number in the step, from 0 on."""
    slot: int
    """The plan's position then."""
    nbytes: int
    planned_bytes: int
    """Of the slot at the position; 0 past the plan's end."""
    stream: int


@dataclass(frozen=True)
class Statistics:
    """Since the engine was made; sizes in bytes."""

    steps: int
    replayed: int
    clean: int
    """Steps in which every slot was taken in its sequence."""
    requests: int
    """In replayed steps, without interrupted ones."""
    hits: int
    """Requests served from the arena."""
    planned_native: int
    """Requests that the plan leaves to the framework's allocator."""
    interrupted: int
    checked: int
    """Requests compared with all bytes in use, as a slot was passed over before them."""
    from_gaps: int
    """Requests of steps without a plan of their own that were served from bytes of the arena which no block used."""
    waits: int
    """Of a stream for an event."""
    plans: int
    replans: int
    evicted: int
    arena_bytes: int
    retired_bytes: int
    """Of arenas that only await their last block."""
    live_slots: int
    live_bytes: int
    counts: dict[Cause, int]
    first: dict[Cause, FirstRequest]


_SCALARS = len(fields(Statistics)) - 2


@dataclass(frozen=True, eq=False)
class StepRecords:
    """The requests of a recorded step, in columns. Clocks count requests and frees of recorded blocks."""

    key: int
    begin: int
    """Clock when the step began."""
    nbytes: Int64s
    streams: Int64s
    """Classes: streams by their first appearance in the step."""
    threads: Int64s
    """0 for the thread that began the step, 1 for others."""
    allocated: Int64s
    """Clock."""
    freed: Int64s
    """Clock; -1 for blocks that are alive."""
    free_steps: Int64s
    """How many steps after its own a block was freed; -1 for those alive."""
    also_used: Int64s
    """Bit c: used on the stream of class c, too; bit 62: on one without a class."""
    slots: Int64s
    """The plan's row that served the request; -1 for native ones."""

    def freed_before_request(self, following: StepRecords | None = None) -> Int64s:
        """For each block how many requests were made before it was freed: up to n in its own step, n + k before request k of the
        `following` one, -1 for those that live longer (without `following`, for all that outlive their step)."""
        count = len(self.nbytes)
        found = np.full(count, -1, np.int64)
        here = self.free_steps == 0
        found[here] = np.searchsorted(self.allocated, self.freed[here])
        if following is not None:
            there = self.free_steps == 1
            found[there] = count + np.searchsorted(following.allocated, self.freed[there])
        return found


class Engine:
    """An engine at an address (of a `memc_replay_engine`). The framework's allocator asks it for blocks; this is what is left to do."""

    def __init__(self, address: int, owner: object = None) -> None:
        """`owner` is kept alive as long as this is."""
        self.address = address
        self._owner = owner

    def begin_step(self, key: int = 0) -> StepMode:
        """Begin a step. One not ended is ended as not completed."""
        return StepMode(_call("begin_step", self.address, key))

    def end_step(self, completed: bool = True) -> StepFindings:
        """End the step. One that an exception left is not `completed`: it is not judged, and its records are dropped."""
        return StepFindings(_call("end_step", self.address, completed))

    def interrupt(self) -> None:
        """Until `resume`, requests are native and the plan's position stays. Interruptions nest."""
        _call("interrupt", self.address)

    def resume(self) -> None:
        _call("resume", self.address)

    def record_steps(self, on: bool) -> None:
        """Record steps although a plan is followed, from the next one on."""
        _call("record_steps", self.address, on)

    def add_plan(
        self,
        key: int,
        nbytes: Int64s,
        streams: Int64s,
        threads: Int64s,
        offsets: Int64s,
        cyclic: npt.NDArray[np.bool_],
        arena: int,
        arena_from: int = -1,
    ) -> None:
        """Steps of the key follow these rows from the next begin on. At most 32 plans are kept.

        Args:
            nbytes, streams, threads: of each request, as recorded.
            offsets: in the arena, multiples of 512; -1 for what the framework's allocator is to serve.
            cyclic: blocks that outlive the step and are freed in the next.
            arena: bytes.
            arena_from: requests at a step's begin that are native while the arena is to be made or to grow, and blocks of the step
                before are alive; -1 to make it at the begin.

        Raises ValueError for columns that are no plan.
        """
        columns = (nbytes, streams, threads, offsets, cyclic)
        _call("add_plan", self.address, key, *(tensor(_column(each)) for each in columns), arena, arena_from)

    def drop_plan(self, key: int) -> None:
        """Raises ValueError if the key has none."""
        _call("drop_plan", self.address, key)

    def escaping(self, key: int) -> list[int]:
        """Rows of the key's plan whose blocks have outlived two steps: a new plan leaves them native, and where one of
        `live_blocks` is, it places nothing."""
        return [int(row) for row in _call("escaping", self.address, key)]

    def records(self, age: int = 1) -> StepRecords | None:
        """Of the `age`-th completed recorded step before now, 1 to 3; None if there was none."""
        heading = _call("read_log", self.address, age, tensor(np.zeros(0, np.int64)))
        if len(heading) == 0:
            return None
        count, key, begin = (int(number) for number in heading)
        table = np.zeros((count, 8), np.int64)
        _call("read_log", self.address, age, tensor(table.reshape(-1)))
        return StepRecords(key, begin, *(np.ascontiguousarray(column) for column in table.T))

    def statistics(self) -> Statistics:
        numbers = [int(number) for number in _call("stats", self.address)]
        counts = numbers[_SCALARS : _SCALARS + len(Cause)]
        rest = numbers[_SCALARS + len(Cause) :]
        size = len(fields(FirstRequest))
        first = {cause: FirstRequest(*rest[cause * size : (cause + 1) * size]) for cause in Cause}
        scalars = dict(zip((each.name for each in fields(Statistics)), numbers[:_SCALARS]))
        return Statistics(**scalars, counts={cause: counts[cause] for cause in Cause}, first=first)

    def warning(self) -> str:
        """Which key's steps pass, and which request of theirs changed first, in one line; empty if none does."""
        return str(_call("warning", self.address))

    def live_blocks(self) -> list[tuple[int, int, int]]:
        """Address, bytes and stream of each block in use."""
        numbers = [int(number) for number in _call("live_blocks", self.address)]
        return list(zip(numbers[::3], numbers[1::3], numbers[2::3]))

    def release_arena(self) -> int:
        """Give the arena back once no block is in it; steps pass until a plan is added. Returns the bytes given back now."""
        return int(_call("release_arena", self.address))


class EventKind(IntEnum):
    """What happens in a rehearsal, with what its columns say."""

    BEGIN_STEP = 0
    """block: the key. Result: a StepMode."""
    END_STEP = 1
    """block: whether it was completed. Result: StepFindings."""
    ALLOCATE = 2
    """Result: the offset in the arena, -1 for a native block."""
    FREE = 3
    FREE_ELSEWHERE = 4
    """By another thread, whenever it gets to it."""
    USE = 5
    """Work on `stream`, which waits for the block's own stream."""
    INTERRUPT = 6
    RESUME = 7
    JOIN = 8
    """Once the other thread has freed all it was given."""
    RELEASE_ARENA = 9
    """Result: bytes."""


Event = tuple[int, int, int, int, int]
"""Kind, block, bytes, stream, thread class."""


class Rehearsal:
    """An application that allocates and works on a device of host memory, which finds every overlap of blocks and every race between
    streams (`cpp/replay/rehearsal/host_device.h`), with an engine of its own.

    Args:
        capacity: bytes of arenas that the device has.
        fills: whether blocks are filled with their number, and compared when they are freed; otherwise arenas are addresses alone.
    """

    def __init__(self, capacity: int = 1 << 62, fills: bool = False) -> None:
        handle = _Handle(int(_call("open", capacity, fills)))
        self._address = handle.address
        self.engine = Engine(int(_call("rehearsed_engine", self._address)), owner=handle)

    def play(self, events: Sequence[Event] | Int64s) -> Int64s:
        """The result of each event. Raises ValueError for one that cannot be, such as the free of a block that is not alive."""
        columns = np.ascontiguousarray(np.array(events, np.int64).reshape(-1, 5).T)
        results = np.zeros(columns.shape[1], np.int64)
        _call("play", self._address, tensor(columns.reshape(-1)), tensor(results))
        return results

    def time(self, events: Sequence[Event] | Int64s, key: int = 0, repeats: int = 100) -> float:
        """Nanoseconds for each of the events, which are a step's requests and frees, and nothing else: the least of `repeats` steps."""
        columns = np.ascontiguousarray(np.array(events, np.int64).reshape(-1, 5).T)
        return float(_call("time", self._address, tensor(columns.reshape(-1)), key, repeats))

    @property
    def wrong(self) -> int:
        """Overlaps, races and changed bytes so far."""
        return int(_call("device_numbers", self._address)[0])

    @property
    def first_wrong(self) -> str:
        return str(_call("first_wrong", self._address))

    @property
    def arena_bytes(self) -> int:
        """Of all arenas that the device has given and not got back."""
        return int(_call("device_numbers", self._address)[1])

    @property
    def device_events(self) -> int:
        """Events of the device that are there."""
        return int(_call("device_numbers", self._address)[2])

    def fail_events(self, fail: bool) -> None:
        """Let the device refuse to record events and to wait for them."""
        _call("fail_events", self._address, fail)

    def set_capacity(self, nbytes: int) -> None:
        _call("set_capacity", self._address, nbytes)


class _Handle:
    """Of a native rehearsal, which ends with it."""

    def __init__(self, address: int) -> None:
        self.address = address
        weakref.finalize(self, _call, "close", address)


def _call(name: str, *arguments: object) -> Any:
    return native.function(f"memc.replay.{name}")(*arguments)


def _column(values: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Int64s:
    return np.array(values, np.int64)
