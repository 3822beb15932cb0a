# SPDX-License-Identifier: Apache-2.0
"""Typed doors to the native search for copies beside recomputation. See `cpp/solvers/offload/schedule.h` for what a schedule
means."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from memc import native
from memc.solvers.arrays import tensor
from memc.solvers.recompute import RecomputePlan, RecomputeProblem, columns
from memc.solvers.watching import watched

FULL_SPEED = 1024
"""Parts of full speed, in which a lane's shared speed is given."""


@dataclass(frozen=True)
class Lane:
    """Copies of one direction, one after another."""

    latency: int
    """Picoseconds that each copy takes beside those of its bytes."""
    per_mib: int
    """Picoseconds for 2**20 bytes while the other lane is idle."""
    shared: int = FULL_SPEED
    """Speed while the other lane is busy, of `FULL_SPEED`."""
    sync: int = 0
    """Picoseconds that a copy takes ops: half of them where it is started, and the rest where it is waited for."""
    drag: int = 0
    """By how much ops are slower while the lane is busy, of `FULL_SPEED`; at most a quarter of it."""

    @property
    def fork(self) -> int:
        """Picoseconds that the start of a copy takes ops."""
        return self.sync // 2

    @property
    def join(self) -> int:
        """Picoseconds that the wait for a copy takes ops, beside the time until it has ended."""
        return self.sync - self.fork

    def duration(self, nbytes: int) -> int:
        """Picoseconds of a copy beside an idle lane, rounded up."""
        return self.latency + -(-nbytes * self.per_mib // 2**20)


@dataclass(frozen=True)
class Lanes:
    """A lane of each direction."""

    out: Lane
    """From the arena."""
    back: Lane
    """Into it."""


@dataclass(frozen=True)
class OffloadProblem:
    """A problem of recomputation whose values may also be copied out of the arena, and back."""

    ops: RecomputeProblem
    """Costs in picoseconds."""
    movable: Sequence[bool]
    """Whether each value may be copied."""
    lanes: Lanes
    host_budget: int | None = None
    """Bytes of copies that are needed at one time at most; None for any number."""


class Step(enum.IntEnum):
    """What an item of a schedule is."""

    RUN = 0
    OUT_START = 1
    OUT_DONE = 2
    DROP = 3
    """A value of which there is a copy leaves the arena."""
    IN_START = 4
    IN_DONE = 5


@dataclass(frozen=True)
class Schedule:
    """Runs of ops, and the starts and ends of copies between them."""

    items: tuple[tuple[Step, int], ...]
    """Each with the number of an op, or of the value that is copied."""
    peak: int
    """Bytes of the arena."""
    copied_peak: int
    """Bytes of copies that are needed at one time."""
    makespan: int
    """Picoseconds."""
    computing: int
    """Picoseconds of all runs."""
    added_cost: int
    """Picoseconds of all runs but the first of each op."""
    bytes_out: int
    bytes_in: int

    @staticmethod
    def of_runs(problem: RecomputeProblem, plan: RecomputePlan) -> Schedule:
        """A plan without copies."""
        time = sum(problem.costs) + plan.added_cost
        items = tuple((Step.RUN, op) for op in plan.sequence)
        return Schedule(items, plan.peak, 0, time, time, plan.added_cost, 0, 0)

    @property
    def first_runs(self) -> tuple[int, ...]:
        """The ops in the sequence in which they run for the first time."""
        return tuple(dict.fromkeys(number for step, number in self.items if step is Step.RUN))

    @property
    def added(self) -> int:
        """Picoseconds beyond those of one run of every op."""
        return self.makespan - self.computing + self.added_cost


def offload_ladder(problem: OffloadProblem, lowest: int, bound: int = 0) -> list[Schedule]:
    """The plans of `recompute_ladder`, and then others with copies, beside each of which no other is as low and much quicker.
    Raises ValueError for a malformed problem."""
    search = native.load()["memc_offload_ladder"]
    plans = watched("recomputation and copies", lambda watch: search(*_arguments(problem, watch), lowest, bound))
    return list(map(_schedule, plans))


def measure_schedule(problem: OffloadProblem, items: Sequence[tuple[Step, int]]) -> Schedule:
    """The figures of a schedule, by definition. Raises ValueError if it is none of the problem's."""
    flat = np.array([int(number) for item in items for number in item], np.int64)
    return _schedule(native.load()["memc_measure_schedule"](*_arguments(problem), tensor(flat)))


def copies_at_least(problem: OffloadProblem, budget: int) -> int:
    """Picoseconds that every schedule takes beyond one run of each op which runs the ops once, in the order of their numbers,
    within `budget` bytes.

    What is live at an op beyond the budget has left before it and comes back after it, each at a lane's full speed. Latency does
    not count, nor what copies take ops.
    """
    costs, over = problem.ops.costs, [live - budget for live in live_bytes(problem.ops)]
    before, whole = 0, sum(costs)
    least = whole
    for cost, bytes_over in zip(costs, over):
        after = whole - before - cost
        if bytes_over > 0:
            out, back = (bytes_over * lane.per_mib // 2**20 for lane in (problem.lanes.out, problem.lanes.back))
            least = max(least, max(before, out) + cost + max(after, back))
        before += cost
    return least - whole


def live_bytes(problem: RecomputeProblem) -> list[int]:
    """Bytes live at each op if nothing leaves the arena, and the op takes over all that it may."""
    sizes = problem.sizes
    change = [0] * (len(problem.costs) + 1)
    made, last = _uses(problem)
    for size, first, end in zip(sizes, made, last):
        change[first] += size
        change[end + 1] -= size
    live = list(accumulate(change[:-1]))
    for op, (over, parts) in enumerate(zip(problem.over, problem.parts)):
        taken = max((sizes[v] for v in over if last[v] == op), default=0)
        live[op] += problem.scratch[op] - taken - sum(sizes[v] for v in parts if last[v] == op)
    return live


def _uses(problem: RecomputeProblem) -> tuple[list[int], list[int]]:
    """Of each value, the op that makes it and the last that reads it."""
    made, last = [0] * len(problem.sizes), [0] * len(problem.sizes)
    for op, (makes, reads) in enumerate(zip(problem.makes, problem.reads)):
        for value in makes:
            made[value] = last[value] = op
        for value in reads:
            last[value] = op
    return made, last


def _schedule(found: Any) -> Schedule:
    numbers = np.frombuffer(bytes(found), np.int64).tolist()
    return Schedule(tuple(zip(map(_STEPS.__getitem__, numbers[7::2]), numbers[8::2])), *numbers[:7])


_STEPS = tuple(Step)


def lane_numbers(lanes: Lanes, host_budget: int | None) -> list[int]:
    """Lanes and a budget as native searches take them."""
    numbers = [
        number
        for lane in (lanes.out, lanes.back)
        for number in (lane.latency, lane.per_mib, lane.shared, lane.sync, lane.drag)
    ]
    return [*numbers, -1 if host_budget is None else host_budget]


def _arguments(problem: OffloadProblem, watch: Any = None) -> tuple[Any, ...]:
    return (
        columns(problem.ops, watch),
        tensor(np.array(problem.movable, np.int64)),
        tensor(np.array(lane_numbers(problem.lanes, problem.host_budget), np.int64)),
    )
