# SPDX-License-Identifier: Apache-2.0
"""The time that a function takes in the cost model, in three lanes: its ops, its copies to the host, and those back.

The rules are those of the search (`cpp/solvers/offload/schedule.h`), read off the function as it stands: ops run one after
another; a copy begins after its start, when its lane has ended the copies before it; what follows its done waits for its end;
while both lanes are busy, each has its shared speed. All times are picoseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from memc.ir.copies import is_done, is_start, start_of
from memc.ir.core import Function, Op, Value
from memc.solvers.offload import FULL_SPEED, Lane, Lanes

Way = Literal["out", "in"]

WAYS: tuple[Way, Way] = ("out", "in")


@dataclass
class Copy:
    """A copy of a value between the arena and the host."""

    op: Op
    """The start."""
    way: Way
    source: Value
    issued: int
    """When its start is passed."""
    begin: int = -1
    end: int = -1
    """When its bytes begin to move, and when they are there."""
    waited: int = 0
    """How long ops wait at its done."""
    left: int = 0
    """Picoseconds that it still takes at full speed, times `FULL_SPEED`."""

    @property
    def value(self) -> Value:
        """What is copied: the result, or a parameter that lies on the host."""
        value = self.source
        while value.op is not None and is_done(value.op):
            value = value.op.operands[1]
        return value

    @property
    def bytes(self) -> int:
        """Bytes that move."""
        return self.source.type.nbytes

    @property
    def duration(self) -> int:
        """While its bytes move."""
        return self.end - self.begin


@dataclass(frozen=True)
class Run:
    """An op that runs, and what it waited for."""

    op: Op
    index: int
    """Among the function's ops."""
    begin: int
    end: int
    waited: int = 0
    """How long nothing ran before it, because of copies."""
    waits_for: Copy | None = None
    """The one of them that took longest."""


@dataclass(frozen=True)
class Intervals:
    """Intervals of time that do not overlap, in their order."""

    begins: list[int]
    ends: list[int]
    before: list[int]
    """The length of all that come before each, and of all."""

    @staticmethod
    def of(intervals: Iterable[tuple[int, int]]) -> Intervals:
        """Each from a time to another."""
        found = list(intervals)
        before = [0, *accumulate(end - begin for begin, end in found)]
        return Intervals([begin for begin, _ in found], [end for _, end in found], before)

    def within(self, begin: int, end: int) -> int:
        """How much of them lies between two times."""
        return max(0, self._until(end) - self._until(begin))

    def _until(self, time: int) -> int:
        at = bisect_left(self.ends, time)
        part = max(0, time - self.begins[at]) if at < len(self.ends) else 0
        return self.before[at] + part


@dataclass
class Timeline:
    """When ops run and bytes move."""

    runs: list[Run] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    """In the order of their starts."""
    makespan: int = 0
    last: Copy | None = None
    """Where nothing runs after the last wait: the copy that took longest of those that the end waits for."""
    starts: list[int] = field(default_factory=list)
    """Of each op of the function, copies too: when it is reached."""

    @property
    def computing(self) -> int:
        """While ops run."""
        return sum(run.end - run.begin for run in self.runs)

    @property
    def waiting(self) -> int:
        """While nothing runs, because of copies."""
        return self.makespan - self.computing

    def busy(self, way: Way) -> Intervals:
        """While the lane of a direction moves bytes."""
        return Intervals.of((copy.begin, copy.end) for copy in self.copies if copy.way == way)

    def idle(self) -> Intervals:
        """While no op runs."""
        waits = [(run.begin - run.waited, run.begin) for run in self.runs if run.waited]
        return Intervals.of([*waits, (self.ran, self.makespan)])

    @property
    def ran(self) -> int:
        """When the last op has run."""
        return self.runs[-1].end if self.runs else 0

    def stalls(self, most: int) -> list[Run]:
        """The ops that wait longest, longest first."""
        found = sorted((run for run in self.runs if run.waited), key=lambda run: (-run.waited, run.index))
        return found[:most]


def timeline(function: Function, cost: Callable[[Op], int], lanes: Lanes) -> Timeline:
    """The timeline of a function. `cost`: picoseconds of an op that is no copy."""
    clock = _Clock({"out": lanes.out, "in": lanes.back})
    found = clock.found
    starts: dict[Op, Copy] = {}
    waited, longest = 0, None
    for index, op in enumerate(function.ops):
        found.starts.append(clock.now)
        if is_start(op):
            starts[op] = clock.issue(op)
        elif is_done(op):
            start = start_of(op)
            assert start is not None
            copy = starts[start]
            copy.waited = clock.wait(copy)
            waited += copy.waited
            longest = copy if copy.waited and (longest is None or copy.waited > longest.waited) else longest
        elif duration := cost(op):
            begin = clock.now
            clock.advance(begin + duration)
            found.runs.append(Run(op, index, begin, clock.now, waited, longest))
            waited, longest = 0, None
    found.makespan, found.last = clock.now, longest
    return found


class _Clock:
    """Time, and the copies that are under way."""

    def __init__(self, lanes: dict[Way, Lane]) -> None:
        self.lanes = lanes
        self.found = Timeline()
        self.queues: dict[Way, list[Copy]] = {way: [] for way in WAYS}
        self.ended: dict[Way, int] = dict.fromkeys(WAYS, 0)
        self.now = 0

    def issue(self, op: Op) -> Copy:
        """Add a copy at the end of its lane."""
        way: Way = "out" if op.name == "offload_start" else "in"
        copy = Copy(op, way, op.operands[0], self.now)
        copy.left = self.lanes[way].duration(copy.bytes) * FULL_SPEED
        self.queues[way].append(copy)
        self.found.copies.append(copy)
        return copy

    def advance(self, time: int) -> None:
        """To a time, if that is later than now."""
        while self.now < time:
            self._step(time - self.now)

    def wait(self, copy: Copy) -> int:
        """To the end of a copy. Returns how long that is."""
        before = self.now
        while copy.end < 0:
            self._step(None)
        return self.now - before

    def _step(self, most: int | None) -> None:
        """Up to the next end of a copy, and at most so far."""
        moving = [queue[self.ended[way]] for way, queue in self.queues.items() if self.ended[way] < len(queue)]
        speeds = [self.lanes[copy.way].shared if len(moving) == 2 else FULL_SPEED for copy in moving]
        steps = [-(-copy.left // speed) for copy, speed in zip(moving, speeds)]
        step = min([*steps, *([] if most is None else [most])])
        for copy, speed in zip(moving, speeds):
            copy.begin = self.now if copy.begin < 0 else copy.begin
            copy.left -= step * speed
            if copy.left <= 0:
                copy.end = self.now + step
                self.ended[copy.way] += 1
        self.now += step
