# SPDX-License-Identifier: Apache-2.0
"""The quickest schedules of copies and recomputation: chains that are reckoned by hand, and never above the search."""

from __future__ import annotations

import random

from memc.solvers.exact.offload import solve_offload
from memc.solvers.exact.offload_bound import added_at_least
from memc.solvers.offload import Lane, Lanes, OffloadProblem, Step, measure_schedule, offload_ladder
from memc.solvers.recompute import RecomputeProblem


def problem_of(
    sizes: list[int], reads: list[list[int]], *, once: bool, copy: int, over: list[list[int]] | None = None
) -> OffloadProblem:
    """Ops of one result each that take 1,000 ps; a copy of 2**20 bytes takes `copy`."""
    ops = len(sizes)
    none: list[list[int]] = [[] for _ in range(ops)]
    problem = RecomputeProblem(
        sizes=[size << 20 for size in sizes],
        costs=[1000] * ops,
        once=[once] * ops,
        scratch=[0] * ops,
        reads=reads,
        makes=[[op] for op in range(ops)],
        over=over or none,
        parts=none,
        until=none,
        in_order=True,
    )
    lane = Lane(0, copy)
    return OffloadProblem(problem, [True] * ops, Lanes(lane, lane))


# Value 0 waits for op 3 while 1 and 2, of 2 MiB, are there together.
WAITING = ([1, 2, 2, 1], [[], [0], [1], [0, 2]])


def test_a_copy_waits_for_its_lane() -> None:
    # Out beside op 1, back after op 2, when 1 is gone: beside nothing.
    best = solve_offload(problem_of(*WAITING, once=True, copy=800), 4 << 20)
    assert best.proven and best.plan is not None
    assert (best.plan.makespan, best.plan.peak, best.plan.bytes_out) == (4000 + 800, 4 << 20, 1 << 20)


def test_a_slow_copy_gives_way_to_recomputation() -> None:
    best = solve_offload(problem_of(*WAITING, once=False, copy=5000), 4 << 20)
    assert best.plan is not None and best.plan.makespan == 5000 and best.plan.bytes_out == 0


def test_a_slow_copy_out_is_waited_for_too() -> None:
    # It leaves from the end of op 0 on, in 5,000, of which 1,000 beside op 1, and comes back in as long.
    best = solve_offload(problem_of(*WAITING, once=True, copy=5000), 4 << 20)
    assert best.plan is not None and best.plan.makespan == 4000 + 4000 + 5000


def test_bytes_that_are_taken_over_count_once() -> None:
    over = [[], [], [1], []]
    problem = problem_of([1, 2, 2, 0], WAITING[1], once=True, copy=800, over=over)
    best = solve_offload(problem, 3 << 20)
    assert best.plan is not None and best.plan.makespan == 4000 and best.plan.peak == 3 << 20


def test_there_may_be_none() -> None:
    best = solve_offload(problem_of(*WAITING, once=True, copy=800), 3 << 20)
    assert best.proven and best.plan is None
    assert not solve_offload(problem_of(*WAITING, once=True, copy=800), 4 << 20, work=5).proven


def step_problem(seed: int) -> OffloadProblem:
    """Three ops forward and three back; lanes that share their speed."""
    chosen = random.Random(seed)
    reads = [[], [0], sorted({1, chosen.randrange(2)}), [2], sorted({1, 3}), sorted({0, 4})]
    found = problem_of([chosen.randrange(1, 6) for _ in reads], reads, once=False, copy=0)
    once = [chosen.random() < 0.4 for _ in reads]
    costs = [chosen.randrange(100, 2000) for _ in reads]
    ops = RecomputeProblem(**{**vars(found.ops), "once": once, "costs": costs})
    lane = Lane(
        chosen.choice((0, 50)),
        chosen.randrange(50, 800),
        chosen.choice((1024, 700)),
        *chosen.choice(((0, 0), (9, 0), (60, 40))),
    )
    return OffloadProblem(ops, [chosen.random() < 0.9 for _ in reads], Lanes(lane, lane))


def test_copies_take_ops_time() -> None:
    """Each start takes 30, each done 31, and ops beside one lane are a quarter slower."""
    problem = problem_of([1, 1, 1, 1], [[], [], [1], [0, 2]], once=True, copy=400)
    lane = Lane(0, 400, 1024, 61, 256)
    found = solve_offload(OffloadProblem(problem.ops, problem.movable, Lanes(lane, lane)), 3 << 20)
    assert found.proven and found.plan is not None and found.plan.makespan == 4000
    found = solve_offload(OffloadProblem(problem.ops, problem.movable, Lanes(lane, lane)), 2 << 20)
    assert found.plan is None or found.plan.makespan > 4000
    runs = [(Step.RUN, 0), (Step.OUT_START, 0), (Step.RUN, 1), (Step.OUT_DONE, 0), (Step.RUN, 2)]
    items = [*runs, (Step.IN_START, 0), (Step.IN_DONE, 0), (Step.RUN, 3)]
    plan = measure_schedule(OffloadProblem(problem.ops, problem.movable, Lanes(lane, lane)), items)
    # 400 of the second run's time do 300 of its work; the copy back is waited for.
    assert plan.makespan == 4000 + 30 + 100 + 31 + 30 + 400 + 31


def test_the_search_is_never_below_it_nor_it_below_the_bound() -> None:
    quicker = 0
    for seed in range(25):
        problem = step_problem(seed)
        for plan in offload_ladder(problem, 0):
            best = solve_offload(problem, plan.peak)
            assert best.proven and best.plan is not None and best.plan.peak <= plan.peak
            assert best.plan.makespan <= plan.makespan, seed
            bound = added_at_least(problem, plan.peak)
            assert bound is not None and bound <= best.plan.added, seed
            quicker += best.plan.makespan < plan.makespan
    assert quicker > 0
