# SPDX-License-Identifier: Apache-2.0
"""The quickest schedule of copies and recomputation within a limit, by search over states: what the search is held against.

Ops run for the first time in the order of their numbers. Between two items of a schedule a state is: how many ops have run, where each
value is, and what is left of the copies that are on their way. From each, every op that may run, every copy that may begin and the oldest
copy of each lane that may end lead to others; bytes are freed only when room is needed, by any smallest set of values. States are
taken by their time and that of the ops still to run (A*), and left out where another of the same kind is no later in any respect.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Optional

from ..offload import FULL_SPEED, Lane, OffloadProblem, Schedule, Step, measure_schedule

WORK = 200_000
"""States that are looked at, at most."""

ABSENT, HERE, LEAVING, COPIED, BOTH, COMING = range(6)
"""Where a value is: nowhere, in the arena, there with its copy on its way out, on the host, in the arena and on the host, and on its way
back, with bytes in the arena already."""

Queue = tuple[tuple[int, int], ...]
"""Values whose copies are on their way in one lane, each with what is left of it (picoseconds at full speed, times `FULL_SPEED`)."""


@dataclass(frozen=True)
class State:
    """Between two items."""

    time: int
    run: int
    """Ops that have run."""
    places: tuple[int, ...]
    out: Queue
    back: Queue

    @property
    def kind(self) -> tuple[object, ...]:
        """What states have in common of which one may be no worse than another in every respect."""
        return self.run, self.places, tuple(v for v, _ in self.out), tuple(v for v, _ in self.back)


Items = tuple[tuple[Step, int], ...]


@dataclass(frozen=True)
class Path:
    """The items that lead to a state, from the last one back."""

    before: Optional[Path]
    items: Items


@dataclass(frozen=True)
class OffloadOptimum:
    """What was found."""

    plan: Schedule | None
    """None if none was found."""
    proven: bool
    """Whether there is no quicker one, or none at all."""


def solve_offload(problem: OffloadProblem, limit: int, work: int = WORK) -> OffloadOptimum:
    """The quickest schedule of at most `limit` bytes whose ops run for the first time in order, after looking at no more than `work`
    states. Raises ValueError for a malformed problem."""
    search = _Search(replace(problem, ops=replace(problem.ops, in_order=True)), limit)
    return search.solve(work)


class _Search:
    def __init__(self, problem: OffloadProblem, limit: int) -> None:
        self.problem, self.ops, self.limit = problem, problem.ops, limit
        self.rest = [0]
        for cost in reversed(self.ops.costs):
            self.rest.append(self.rest[-1] + cost)
        self.rest.reverse()
        self.known: dict[tuple[object, ...], list[State]] = {}

    def solve(self, work: int) -> OffloadOptimum:
        start = State(0, 0, (ABSENT,) * len(self.ops.sizes), (), ())
        heap: list[tuple[int, int, State, Path | None]] = [(self.rest[0], 0, start, None)]
        count = 0
        while heap and count < work:
            _, _, state, path = heapq.heappop(heap)
            if state.run == len(self.ops.costs) and not state.out and not state.back:
                return OffloadOptimum(measure_schedule(self.problem, _listed(path)), True)
            for other, items in self._next(state):
                if self._is_new(other):
                    count += 1
                    heapq.heappush(heap, (other.time + self.rest[other.run], count, other, Path(path, items)))
        return OffloadOptimum(None, not heap)

    def _is_new(self, state: State) -> bool:
        """Whether no known state is as early and as far; then it is known."""
        known = self.known.setdefault(state.kind, [])
        if any(self._is_no_worse(other, state) for other in known):
            return False
        known[:] = [other for other in known if not self._is_no_worse(state, other)]
        known.append(state)
        return True

    def _is_no_worse(self, a: State, b: State) -> bool:
        if a.time > b.time:
            return False
        out, back = self._advanced(a.out, a.back, b.time - a.time)
        return all(x[1] <= y[1] for x, y in zip((*out, *back), (*b.out, *b.back)))

    def _next(self, state: State) -> Iterator[tuple[State, Items]]:
        for op in range(min(state.run + 1, len(self.ops.costs))):
            yield from self._runs(state, op)
        for value, place in enumerate(state.places):
            if place == HERE and self.problem.movable[value] and state.run < len(self.ops.costs):
                lane = self.problem.lanes.out
                out, back = self._advanced(state.out, state.back, lane.fork)
                out = (*out, (value, self._work(lane, value)))
                moved = State(state.time + lane.fork, state.run, _moved(state.places, {value: LEAVING}), out, back)
                yield moved, ((Step.OUT_START, value),)
            elif place == COPIED:
                yield from self._fetches(state, value)
        yield from self._waits(state)

    def _work(self, lane: Lane, value: int) -> int:
        return lane.duration(self.ops.sizes[value]) * FULL_SPEED

    def _waits(self, state: State) -> Iterator[tuple[State, Items]]:
        """The oldest copy of a lane ends."""
        if state.out:
            value = state.out[0][0]
            time, out, back = self._when_ended(state, out=True)
            places = _moved(state.places, {value: COPIED})
            yield State(time, state.run, places, out[1:], back), ((Step.OUT_DONE, value),)
        if state.back:
            value = state.back[0][0]
            time, out, back = self._when_ended(state, out=False)
            places = _moved(state.places, {value: BOTH})
            yield State(time, state.run, places, out, back[1:]), ((Step.IN_DONE, value),)

    def _fetches(self, state: State, value: int) -> Iterator[tuple[State, Items]]:
        lane = self.problem.lanes.back
        out, back = self._advanced(state.out, state.back, lane.fork)
        back = (*back, (value, self._work(lane, value)))
        for freed in self._room(state.places, self.ops.sizes[value], ()):
            places = _moved(self._without(state.places, freed), {value: COMING})
            yield (
                State(state.time + lane.fork, state.run, places, out, back),
                (*_drops(state, freed), (Step.IN_START, value)),
            )

    def _runs(self, state: State, op: int) -> Iterator[tuple[State, Items]]:
        ops, places = self.ops, state.places
        again = op < state.run
        makes = ops.makes[op]
        refused = again and (ops.once[op] or not makes)
        refused = refused or any(other < state.run for other in ops.until[op])
        refused = refused or any(places[v] != ABSENT for v in makes)
        if refused or any(places[v] not in (HERE, LEAVING, BOTH) for v in ops.reads[op]):
            return
        nbytes = sum(ops.sizes[v] for v in makes) + ops.scratch[op]
        for dies in self._dying(places, op):
            over = next((ops.sizes[v] for v in ops.over[op] if v in dies), 0)
            taken = over + sum(ops.sizes[v] for v in ops.parts[op] if v in dies)
            for freed in self._room(places, nbytes - taken, ops.reads[op]):
                after = self._without(places, (*freed, *dies))
                time, out, back = self._while_runs(state, ops.costs[op])
                run = state.run + (not again)
                moved = State(time, run, _moved(after, dict.fromkeys(makes, HERE)), out, back)
                yield moved, (*_drops(state, freed), (Step.RUN, op), *_drops(state, dies))

    def _dying(self, places: Sequence[int], op: int) -> Iterator[tuple[int, ...]]:
        """Values that end with a run whose result takes over their bytes."""
        may = [v for v in (*self.ops.over[op], *self.ops.parts[op]) if places[v] in (HERE, BOTH)]
        for count in range(len(may) + 1):
            yield from combinations(may, count)

    def _room(self, places: Sequence[int], nbytes: int, keep: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The smallest sets of values without which there is room for so many bytes more."""
        live = sum(size for size, place in zip(self.ops.sizes, places) if place not in (ABSENT, COPIED))
        short = live + nbytes - self.limit
        if short <= 0:
            yield ()
            return
        may = [v for v, place in enumerate(places) if place in (HERE, BOTH) and v not in keep and self.ops.sizes[v]]
        for count in range(1, len(may) + 1):
            for freed in combinations(may, count):
                total = sum(self.ops.sizes[v] for v in freed)
                if total >= short and all(total - self.ops.sizes[v] < short for v in freed):
                    yield freed

    def _without(self, places: tuple[int, ...], freed: Sequence[int]) -> tuple[int, ...]:
        return _moved(places, {v: COPIED if places[v] == BOTH else ABSENT for v in freed})

    # --- The lanes.
    def _advanced(self, out: Queue, back: Queue, time: int) -> tuple[Queue, Queue]:
        """After so long. Copies that have ended stay, with nothing left."""
        lines = [list(out), list(back)]
        while time > 0:
            heads = [next((i for i, (_, left) in enumerate(line) if left > 0), -1) for line in lines]
            busy = [n for n in (0, 1) if heads[n] >= 0]
            if not busy:
                break
            lanes = (self.problem.lanes.out, self.problem.lanes.back)
            speeds = [lanes[n].shared if len(busy) == 2 else FULL_SPEED for n in (0, 1)]
            step = min([time, *(-(-lines[n][heads[n]][1] // speeds[n]) for n in busy)])
            for n in busy:
                value, left = lines[n][heads[n]]
                lines[n][heads[n]] = (value, max(0, left - step * speeds[n]))
            time -= step
        return tuple(lines[0]), tuple(lines[1])

    def _while_runs(self, state: State, cost: int) -> tuple[int, Queue, Queue]:
        """The time and the lanes after an op that takes `cost` beside idle lanes."""
        time, lines, work = state.time, (state.out, state.back), cost * FULL_SPEED
        lanes = (self.problem.lanes.out, self.problem.lanes.back)
        while work > 0:
            lefts = [next((left for _, left in line if left > 0), 0) for line in lines]
            both = all(lefts)
            pace = FULL_SPEED - sum(lane.drag for left, lane in zip(lefts, lanes) if left)
            steps = [-(-left // (lane.shared if both else FULL_SPEED)) for left, lane in zip(lefts, lanes) if left]
            step = min([-(-work // pace), *steps])
            lines = self._advanced(*lines, step)
            time += step
            work -= step * pace
        return (time, *lines)

    def _when_ended(self, state: State, out: bool) -> tuple[int, Queue, Queue]:
        """The time and the lanes when the oldest copy out, or in, has ended and is joined."""
        time, lines = state.time, (state.out, state.back)
        line = 0 if out else 1
        while lines[line][0][1] > 0:
            lefts = [next((left for _, left in line if left > 0), 0) for line in lines]
            lanes = (self.problem.lanes.out, self.problem.lanes.back)
            both = all(lefts)
            steps = [-(-left // (lane.shared if both else FULL_SPEED)) for left, lane in zip(lefts, lanes) if left]
            lines = self._advanced(*lines, min(steps))
            time += min(steps)
        join = (self.problem.lanes.out if out else self.problem.lanes.back).join
        return (time + join, *self._advanced(*lines, join))


def _moved(places: tuple[int, ...], new: dict[int, int]) -> tuple[int, ...]:
    return tuple(new.get(value, place) for value, place in enumerate(places))


def _drops(state: State, freed: Sequence[int]) -> Items:
    """What says that values with copies leave the arena; others end with their last use."""
    return tuple((Step.DROP, v) for v in freed if state.places[v] == BOTH)


def _listed(path: Path | None) -> list[tuple[Step, int]]:
    found: list[Items] = []
    while path is not None:
        found.append(path.items)
        path = path.before
    return [item for items in reversed(found) for item in items]
