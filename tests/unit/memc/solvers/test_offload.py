# SPDX-License-Identifier: Apache-2.0
"""The native search for copies on problems like training steps: some ops run once, and some results nobody reads."""

from __future__ import annotations

import random

import pytest

from memc.solvers.offload import (
    Lane,
    Lanes,
    OffloadProblem,
    Schedule,
    Step,
    copies_at_least,
    measure_schedule,
    offload_ladder,
)
from memc.solvers.recompute import RecomputeProblem

TAKEN = ((0, 0), (30, 0), (50, 40))
"""What copies take ops: `sync` and `drag` of lanes."""


def step_problem(seed: int) -> OffloadProblem:
    """A chain forward, of which half of the ops run once, and one back, with gradients of weights outside the arena."""
    chosen = random.Random(seed)
    length = chosen.randrange(4, 8)
    sizes, makes, reads = [], [], []

    def op(size: int, *read: int) -> int:
        makes.append([len(sizes)])
        sizes.append(size)
        reads.append(sorted(set(read)))
        return len(sizes) - 1

    forward = [op(64 * chosen.randrange(1, 8))]
    for _ in range(length - 1):
        forward.append(op(64 * chosen.randrange(1, 8), forward[-1]))
    last = forward[-1]
    for value in reversed(forward):
        op(0, last, value)
        other = op(64 * chosen.randrange(1, 4), last, chosen.choice(forward))
        last = op(64 * chosen.randrange(1, 4), other, value)
    ops = len(makes)
    none: list[list[int]] = [[] for _ in range(ops)]
    problem = RecomputeProblem(
        sizes=sizes,
        costs=[chosen.randrange(1, 2000) for _ in range(ops)],
        once=[number < length and chosen.random() < 0.5 for number in range(ops)],
        scratch=[0] * ops,
        reads=reads,
        makes=makes,
        over=none,
        parts=none,
        until=none,
    )
    lane = Lane(
        chosen.choice((0, 10, 200)), 1 << chosen.choice((18, 20, 22)), chosen.choice((1024, 512)), *TAKEN[seed % 3]
    )
    return OffloadProblem(problem, [size > 0 for size in sizes], Lanes(lane, lane))


def most_live(problem: OffloadProblem, items: tuple[tuple[Step, int], ...]) -> int:
    """The most bytes that are taken at any item, starts and ends of copies included."""
    taken: dict[int, int] = {}  # Of each value that is in the arena: the item of its last use.
    ranges: list[tuple[int, int, int]] = []
    begun: dict[int, int] = {}

    def end(value: int, at: int) -> None:
        ranges.append((begun.pop(value), at, value))

    for at, (step, number) in enumerate(items):
        if step is Step.RUN:
            taken.update((value, at) for value in problem.ops.reads[number])
            for value in problem.ops.makes[number]:
                if value in begun:
                    end(value, taken[value])
                begun[value] = taken[value] = at
        elif step is Step.OUT_DONE:
            end(number, at)
        elif step is Step.DROP:
            end(number, taken[number])
        elif step is Step.IN_START:
            begun[number] = taken[number] = at
        elif step is Step.IN_DONE:
            taken[number] = at
    for value in list(begun):
        end(value, taken[value])
    return max(sum(problem.ops.sizes[v] for a, b, v in ranges if a <= at <= b) for at in range(len(items)))


def cheapest(plans: list[Schedule], budget: int) -> Schedule | None:
    fitting = [plan for plan in plans if plan.peak <= budget]
    return min(fitting, key=lambda plan: (plan.added, plan.bytes_in, plan.peak), default=None)


@pytest.mark.parametrize("seed", range(24))
def test_plans_are_sound(seed: int) -> None:
    problem = step_problem(seed)
    plans = offload_ladder(problem, 0)
    for plan in plans:
        assert measure_schedule(problem, plan.items) == plan
        assert most_live(problem, plan.items) == plan.peak
        runs = [number for step, number in plan.items if step is Step.RUN]
        if runs == list(range(len(problem.ops.costs))):
            assert plan.added >= copies_at_least(problem, plan.peak)


@pytest.mark.parametrize("seed", range(8))
def test_a_lower_budget_never_gives_a_higher_peak(seed: int) -> None:
    problem = step_problem(100 + seed)
    top = offload_ladder(problem, 2**40)[0].peak
    peaks = []
    for budget in range(top, top // 3, -max(64, top // 12)):
        found = cheapest(offload_ladder(problem, budget * 19 // 20), budget)
        if found is not None:
            peaks.append(found.peak)
    assert peaks == sorted(peaks, reverse=True) and len(peaks) > 2


def test_copies_that_would_take_hours_are_refused() -> None:
    problem = step_problem(0)
    slow = Lane(10**16, 1)
    with pytest.raises(ValueError, match="at most an hour"):
        offload_ladder(OffloadProblem(problem.ops, problem.movable, Lanes(slow, slow)), 0)


def test_values_come_back_no_earlier_than_they_must() -> None:
    """A copy that takes less than a run starts before the run in front of its reader, and not as soon as there is room."""
    quick = Lane(0, 1)
    fetched = 0
    for seed in range(12):
        problem = step_problem(seed)
        problem = OffloadProblem(problem.ops, problem.movable, Lanes(quick, quick))
        for plan in offload_ladder(problem, 0):
            runs, started = 0, {}
            for step, number in plan.items:
                runs += step is Step.RUN
                if step is Step.IN_START:
                    started[number] = runs
                elif step is Step.IN_DONE:
                    fetched += 1
                    assert runs - started[number] <= 1, (seed, plan)
    assert fetched > 100


@pytest.mark.parametrize("seed", range(8))
def test_a_host_budget_is_kept_while_plans_are_sought(seed: int) -> None:
    problem = step_problem(200 + seed)
    free = offload_ladder(problem, 0)
    most = max(plan.copied_peak for plan in free)
    kept = 0
    for part in (2, 3):
        limited = OffloadProblem(problem.ops, problem.movable, problem.lanes, most // part)
        plans = offload_ladder(limited, 0)
        assert max(plan.copied_peak for plan in plans) <= most // part
        kept += sum(plan.bytes_in > 0 for plan in plans)
    assert kept > 0 or most < 64 * 4
    nothing = offload_ladder(OffloadProblem(problem.ops, problem.movable, problem.lanes, 0), 0)
    assert nothing == [plan for plan in free if not plan.bytes_in]


@pytest.mark.parametrize("seed", range(8))
def test_a_quicker_link_makes_no_schedule_slower(seed: int) -> None:
    problem = step_problem(300 + seed)
    for plan in offload_ladder(problem, 0):
        last = plan.makespan
        for part in (2, 8, 64, 10**9):
            lane = problem.lanes.out
            quicker = Lane(lane.latency // part, lane.per_mib // part, lane.shared, lane.sync // part, lane.drag)
            faster = OffloadProblem(problem.ops, problem.movable, Lanes(quicker, quicker))
            found = measure_schedule(faster, plan.items).makespan
            assert found <= last
            last = found
