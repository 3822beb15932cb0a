# SPDX-License-Identifier: Apache-2.0
"""The time that a function takes in the cost model, in three lanes: its ops, its copies to the host, and those back.

The rules are those of the search (`cpp/solvers/offload/schedule.h`), read off the function as it stands by
`passes/offload/lane_times.py`. All times are picoseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from memc.ir.copies import arena_states, host_params, is_done, is_start, start_of
from memc.ir.core import Function, Op, Value
from memc.passes.offload.lane_times import LaneTimes, way_of
from memc.solvers.lane_clock import WAYS, Way
from memc.solvers.offload import Lanes


@dataclass
class Copy:
    """A copy of a value between the arena and the host."""

    op: Op
    """The start."""
    way: Way
    source: Value
    issued: int
    """When its start is passed."""
    begin: int
    end: int
    """When its bytes begin to move, and when they are there."""
    waited: int = 0
    """How long ops wait at its start and its done."""

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
    """The timeline of a function. `cost`: picoseconds of an op that is no copy.

    Starts and waits of one lane between two ops take ops time once where weights or states lie on the host, as they are planned for and as
    programs have it; elsewhere each, as the search for values counts them.
    """
    grouped = bool(host_params(function) or arena_states(function))
    times = LaneTimes.of(function.ops, cost, lanes, grouped=grouped)
    found = Timeline(makespan=times.makespan, starts=times.begins[:-1])
    copies: dict[Op, Copy] = {}
    moves = {way: iter(times.busy[way]) for way in WAYS}
    waited, longest = 0, None
    for index, (op, begin, end) in enumerate(zip(function.ops, times.begins, times.begins[1:])):
        if is_start(op) or is_done(op):
            copy = _copy_of(op, begin, copies, moves)
            copy.waited += end - begin
            waited += end - begin
            longest = copy if copy.waited and (longest is None or copy.waited > longest.waited) else longest
        elif cost(op):
            found.runs.append(Run(op, index, begin, end, waited, longest))
            waited, longest = 0, None
    found.copies = list(copies.values())
    found.last = longest
    return found


def _copy_of(op: Op, now: int, copies: dict[Op, Copy], moves: Mapping[Way, Iterator[tuple[int, int]]]) -> Copy:
    """The copy that an op begins or waits for. `copies`: those that have begun, by their starts; `moves`: when those of each direction
    that have not begun yet move their bytes."""
    if not is_start(op):
        start = start_of(op)
        assert start is not None
        return copies[start]
    way = way_of(op)
    copies[op] = Copy(op, way, op.operands[0], now, *next(moves[way]))
    return copies[op]
