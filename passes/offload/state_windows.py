# SPDX-License-Identifier: Apache-2.0
"""When states on the host are in the arena: their *windows*, from the start of the copy in to the end of the copy back.

Updates are taken together in groups, one after another as their gradients are there. What a group needs comes in as late as the lane's
idle time before it allows, with a quarter to spare, and later where the arena has no room; what it has written leaves at once, and its
bytes are free when the lane has carried it, or earlier, at the price of a wait, where something else needs room.

What is updated last has no ops beside which it could leave. The last windows may *stay*: their states lie in the arena when the step ends,
where little else is live by then, and leave for the host when the next step begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memc.ir.core import Op, Value
from memc.ir.sizes import align
from memc.passes.offload.lane_times import LaneTimes
from memc.passes.offload.state_updates import StateUpdates, Update
from memc.solvers.offload import FULL_SPEED, Lane, Lanes

SLACK = 4
"""A part of the duration of copies in, one of so many, by which they begin earlier than they must."""


@dataclass(frozen=True)
class Window:
    """States in the arena, for the ops [first, last) of a sequence."""

    states: tuple[Value, ...]
    first: int
    last: int
    written: bool
    """Whether they leave with new content; else they were only read."""
    begin: int = 0
    """Before which op of the sequence copies in start."""
    end: int = 0
    """Before which op copies out are waited for."""
    at_once: bool = False
    """Whether each state leaves once it is updated, not with the others."""
    left: int | None = None
    """Of states that stay: before which op of the next step the copies out, which start first of all, are waited for."""

    @property
    def bytes(self) -> int:
        """Of its states."""
        return sum(state.type.nbytes for state in self.states)

    def room(self, alignment: int) -> int:
        """Bytes of its states in the arena."""
        return sum(align(state.type.nbytes, alignment) for state in self.states)


@dataclass(frozen=True)
class Grouped:
    """Ops with the updates in groups, and the windows of these."""

    ops: list[Op]
    windows: list[Window]
    """In the order of `first`."""

    def last(self, count: int) -> list[Window]:
        """Of the windows whose states are needed at no other time, so many of the last."""
        read = {state for window in self.windows if not window.written for state in window.states}
        able = [window for window in self.windows if window.written and read.isdisjoint(window.states)]
        return able[len(able) - min(count, len(able)) :]


def grouped(
    ops: Sequence[Op], found: StateUpdates, chosen: Sequence[Update], most: int, delays: Delays | None = None
) -> Grouped:
    """The ops of a function, where each of the `chosen` updates, in their sequence, waits for others until those of a group have `most`
    bytes of states, or half of what is left; and then, with `delays`, for other ops."""
    early = [op for op in ops if op in found.early]
    own = {op for update in chosen for op in (*update.before, *update.ops)}
    rest = [op for op in ops if op not in own and op not in found.early]
    place = {op: index for index, op in enumerate(rest)}
    groups: list[list[Update]] = []
    nbytes, left = 0, sum(update.bytes for update in chosen)
    room = 0
    for update in chosen:
        if not groups or nbytes + update.bytes > room:
            groups.append([])
            # The last groups are smaller: nothing hides what leaves at the end.
            nbytes, room = 0, min(most, left // 2)
        groups[-1].append(update)
        nbytes += update.bytes
        left -= update.bytes
    after: dict[int, list[list[Update]]] = {}
    ready = -1
    for group in groups:
        ready = max(ready, max((place.get(op, -1) for update in group for op in update.behind), default=-1))
        ready = ready if delays is None else delays.until(ready, group, rest)
        after.setdefault(ready, []).append(group)
    written: list[Op] = list(early)
    windows: list[Window] = []
    where: dict[Op, int] = {}
    for index in range(-1, len(rest)):
        if index >= 0:
            where[rest[index]] = len(written)
            written.append(rest[index])
        for group in after.get(index, ()):
            written += [op for update in group for op in update.before]
            first = len(written)
            written += [op for update in group for op in update.ops]
            states = tuple(state for update in group for state in update.states)
            windows.append(Window(states, first, len(written), True))
    moved = {state for window in windows for state in window.states}
    for state, readers in found.casts.items():
        if state in moved:
            windows += [Window((state,), where[op], where[op] + 1, False) for op in readers]
    return Grouped(written, sorted(windows, key=lambda window: window.first))


@dataclass(frozen=True)
class Delays:
    """How long updates wait, once they are ready, beside other ops."""

    picoseconds: Mapping[Op, int]
    """By the first op of an update."""
    cost: Callable[[Op], int]
    """Picoseconds of an op."""

    def until(self, ready: int, group: Sequence[Update], ops: Sequence[Op]) -> int:
        """The number of the last of `ops` that a group runs behind, where that by which it is ready is given."""
        left = max(self.picoseconds.get(update.ops[0], 0) for update in group)
        while left > 0 and ready + 1 < len(ops):
            ready += 1
            left -= self.cost(ops[ready])
        return ready


@dataclass
class _Room:
    """Bytes of the arena in use at each op."""

    used: npt.NDArray[np.int64]
    limit: int

    def from_where(self, begin: int, end: int, nbytes: int) -> int:
        """From which op on they have room until op `end`."""
        full = np.flatnonzero(self.used[begin:end] + nbytes > self.limit)
        return begin + int(full[-1]) + 1 if len(full) else begin

    def until(self, begin: int, end: int, nbytes: int) -> int:
        """Up to which op they have room from op `begin` on."""
        full = np.flatnonzero(self.used[begin:end] + nbytes > self.limit)
        return begin + int(full[0]) if len(full) else end

    def take(self, begin: int, end: int, nbytes: int) -> None:
        """Have them in use during ops [begin, end)."""
        self.used[begin:end] += nbytes


def planned_windows(
    sequence: Grouped,
    live: npt.NDArray[np.int64],
    limit: int,
    times: LaneTimes,
    lanes: Lanes,
    alignment: int,
    staying: int = 0,
) -> list[Window] | None:
    """The windows with their begins and ends. None if states and what is `live` at the ops that read them have more than `limit`
    bytes. `times`: of the ops without these windows. `staying`: how many of the last windows stay."""
    begins = times.begins
    room = _Room(live.astype(np.int64), limit)
    stay = set(map(id, sequence.last(staying)))
    for window in sequence.windows:
        room.take(window.first, len(live) if id(window) in stay else window.last, window.room(alignment))
    departed = _departures(sequence.last(staying), room, times, lanes.out, alignment)
    if int(room.used.max(initial=0)) > limit:
        return None
    starts = _latest_starts(sequence.windows, times, lanes.back)
    last = max(window.last for window in sequence.windows)
    found: list[Window] = []
    before, out_from = 0, 0
    for window, start in zip(sequence.windows, starts):
        nbytes = window.room(alignment)
        begin = min(window.first, max(before, bisect_right(begins, start, 0, len(begins) - 1) - 1, 0))
        begin = room.from_where(begin, window.first, nbytes)
        end = window.last
        left = departed.get(id(window))
        if left is not None:
            end = len(live)
        elif window.written:
            out_from = _earliest_end(max(out_from, begins[window.last]), window.states, times.busy["out"], lanes.out)
            end = room.until(window.last, max(window.last, bisect_left(begins, out_from, 0, len(begins) - 1)), nbytes)
        room.take(begin, window.first, nbytes)
        if left is None:
            room.take(window.last, end, nbytes)
        before = begin
        # Nothing but its own ops hides what leaves at the end.
        forks = len(window.states) * lanes.out.fork
        at_once = window.written and window.last == last and begins[window.last] - begins[window.first] > forks
        found.append(replace(window, begin=begin, end=end, at_once=at_once, left=left))
    return found


def _departures(windows: Sequence[Window], room: _Room, times: LaneTimes, lane: Lane, alignment: int) -> dict[int, int]:
    """Before which op the copies out of each window that stays, by its `id`, are waited for; their room is taken until then."""
    begins, found = times.begins, {}
    over = 0
    for window in windows:
        over = _earliest_end(over, window.states, times.busy["out"], lane)
        nbytes = window.room(alignment)
        found[id(window)] = left = room.until(0, bisect_left(begins, over, 0, len(begins) - 1), nbytes)
        room.take(0, max(1, left), nbytes)
    return found


def least_room(sequence: Grouped, live: npt.NDArray[np.int64], alignment: int) -> int:
    """The fewest bytes by which `planned_windows` finds room for all of them."""
    least = int(live.max(initial=0))
    for window in sequence.windows:
        used = int(live[window.first : window.last].max(initial=0))
        least = max(least, used + window.room(alignment))
    return least


def _duration(states: Sequence[Value], lane: Lane) -> int:
    """Picoseconds that copies take beside a busy lane of the other direction."""
    return sum(lane.duration(state.type.nbytes) * FULL_SPEED // lane.shared for state in states)


def _latest_starts(windows: Sequence[Window], times: LaneTimes, lane: Lane) -> list[int]:
    """When the copies in of each window must start, so that ops need not wait for them; below 0 where that is too early."""
    busy = times.busy["in"]
    found: list[int] = []
    deadline = times.makespan
    for window in reversed(windows):
        needed = _duration(window.states, lane)
        needed += needed // SLACK
        deadline = _latest_start(min(deadline, times.begins[window.first]), needed, busy)
        found.append(deadline)
    return found[::-1]


def _latest_start(deadline: int, needed: int, busy: Sequence[tuple[int, int]]) -> int:
    """The latest time from which a lane has so much idle time before a deadline."""
    at = bisect_left(busy, (deadline, 0)) - 1
    while at >= 0:
        begin, end = busy[at]
        idle = max(0, deadline - end)
        if idle >= needed:
            break
        needed -= idle
        deadline = min(deadline, begin)
        at -= 1
    return deadline - needed


def _earliest_end(start: int, states: Sequence[Value], busy: Sequence[tuple[int, int]], lane: Lane) -> int:
    """When a lane has carried states from a time on, in its idle time."""
    needed = _duration(states, lane)
    at = max(0, bisect_right(busy, (start, 1 << 62)) - 1)
    while at < len(busy):
        begin, end = busy[at]
        idle = max(0, begin - start)
        if idle >= needed:
            break
        needed -= idle
        start = max(start, end)
        at += 1
    return start + needed
