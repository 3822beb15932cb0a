# SPDX-License-Identifier: Apache-2.0
"""Small problems of copies that are hard in one way each (`docs/testing.md` has the list of all such cases)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from memc.solvers.offload import Lane, Lanes, OffloadProblem, Schedule, Step, measure_schedule, offload_ladder
from memc.solvers.recompute import RecomputeProblem, recompute_ladder

from .test_offload import cheapest, most_live, step_problem

MICROSECOND = 10**6


def steps(sizes: Sequence[int], reads: Sequence[Sequence[int]], cost: int, once: bool = False) -> RecomputeProblem:
    """Ops that each make one value, and take `cost` picoseconds."""
    none: list[list[int]] = [[] for _ in sizes]
    return RecomputeProblem(
        sizes=sizes,
        costs=[cost] * len(sizes),
        once=[once] * len(sizes),
        scratch=[0] * len(sizes),
        reads=reads,
        makes=[[number] for number in range(len(sizes))],
        over=none,
        parts=none,
        until=none,
    )


def test_latency_of_many_small_values_counts() -> None:
    """As in an unrolled LSTM: each copy takes as long as five ops, nearly all of it latency."""
    length, size = 120, 128 << 10
    reads = [[n - 1] if n else [] for n in range(length)]
    reads += [[length + n - 1, length - 1 - n] if n else [length - 1] for n in range(length)]
    problem = steps([size] * 2 * length, reads, 2 * MICROSECOND)
    lane = Lane(latency=8 * MICROSECOND, per_mib=19 * MICROSECOND)
    moved = OffloadProblem(problem, [True] * 2 * length, Lanes(lane, lane))
    plans = offload_ladder(moved, 40 * size)
    alone = [Schedule.of_runs(problem, plan) for plan in recompute_ladder(problem, 40 * size)]
    used = 0
    for values in (100, 80, 60, 45):
        best, other = cheapest(plans, values * size), cheapest(alone, values * size)
        assert best is not None and other is not None and best.added <= other.added
        copies = sum(step is Step.IN_START for step, _ in best.items)
        used = max(used, copies)
        assert copies * lane.duration(size) <= best.makespan
    assert 0 < used < length // 2


@pytest.mark.parametrize("seed", range(16))
def test_no_copy_is_behind_one_that_is_needed_later(seed: int) -> None:
    """A small value does not wait for a large one in front of it: a lane has them in the sequence of their readers."""
    problem = step_problem(seed)
    for plan in offload_ladder(problem, 0):
        begun = [number for step, number in plan.items if step is Step.IN_START]
        assert begun == [number for step, number in plan.items if step is Step.IN_DONE]


def test_a_small_value_comes_back_before_a_large_one() -> None:
    """Both leave, as there is room for three large ones; the one takes 12 times as long as the other, and is read right after it."""
    large, small = 1000 << 20, 80 << 20
    sizes = [large, small, *[large] * 6, small, small, small]
    reads = [[], [], [0, 1], [2], *([n - 1, n - 2] for n in range(4, 8)), [7], [8, 1], [9, 0]]
    lane = Lane(0, MICROSECOND)
    problem = OffloadProblem(steps(sizes, reads, 3000 * MICROSECOND, once=True), [True] * len(sizes), Lanes(lane, lane))
    best = cheapest(offload_ladder(problem, 0), 3 * large + small // 2)
    assert best is not None and best.makespan - best.computing <= lane.duration(
        small
    )  # To leave; not for the large one.
    assert [number for step, number in best.items if step is Step.IN_START] == [1, 0]


def test_ops_wait_for_room_that_a_copy_out_still_has() -> None:
    """Copies take three times as long as ops: the budget bites before the first one is over. Nothing may be recomputed."""
    length, size = 8, 1 << 20
    reads = [[n - 1] if n else [] for n in range(length)]
    reads += [[length + n - 1, length - 1 - n] if n else [length - 1] for n in range(length)]
    lane = Lane(0, 3 * MICROSECOND)
    problem = OffloadProblem(
        steps([size] * 2 * length, reads, MICROSECOND, once=True), [True] * 2 * length, Lanes(lane, lane)
    )
    best = cheapest(offload_ladder(problem, 0), 5 * size)
    assert best is not None and most_live(problem, best.items) == best.peak <= 5 * size
    assert best.makespan > best.computing == 2 * length * MICROSECOND
    done = [at for at, (step, _) in enumerate(best.items) if step is Step.OUT_DONE]
    early = [*best.items]
    early.insert(done[0] - 1, early.pop(done[0]))  # One op earlier: the room is there, and ops wait longer.
    if early[done[0]][0] is Step.RUN:
        assert measure_schedule(problem, early).makespan >= best.makespan
    late = [*best.items]
    late.insert(done[0] + 1, late.pop(done[0]))  # One item later: what took the room has none.
    assert measure_schedule(problem, late).peak > best.peak or late[done[0]][0] is not Step.RUN


def copies_alone(problem: OffloadProblem) -> list[Schedule]:
    """Plans of copies alone, in the order given."""
    once = replace(problem.ops, once=[True] * len(problem.ops.costs), in_order=True)
    return offload_ladder(OffloadProblem(once, problem.movable, problem.lanes), 0)


@pytest.mark.parametrize("seed", range(10))
def test_both_beside_either_alone(seed: int) -> None:
    problem = step_problem(400 + seed)
    alone = [Schedule.of_runs(problem.ops, plan) for plan in recompute_ladder(problem.ops, 0)]
    plans, copied = offload_ladder(problem, 0), copies_alone(problem)
    assert [plan for plan in plans if not plan.bytes_in] == alone
    compared = 0
    for budget in sorted({plan.peak for plan in (*alone, *copied)}):
        best = cheapest(plans, budget)
        for other in (cheapest(alone, budget), cheapest(copied, budget)):
            if other is not None:
                compared += 1
                assert best is not None and best.added <= other.added, budget
    assert compared > 10


@pytest.mark.parametrize("seed", range(10))
def test_over_a_link_of_hardly_any_rate_plans_are_those_of_recomputation(seed: int) -> None:
    problem = step_problem(500 + seed)
    alone = [Schedule.of_runs(problem.ops, plan) for plan in recompute_ladder(problem.ops, 0)]
    slow = Lane(0, 1 << 50)
    plans = offload_ladder(replace(problem, lanes=Lanes(slow, slow)), 0)
    budgets = sorted({plan.peak for plan in alone})
    assert [cheapest(plans, budget) for budget in budgets] == [cheapest(alone, budget) for budget in budgets]
