# SPDX-License-Identifier: Apache-2.0
"""The exact solver of recomputation, held against all short sequences of small problems, and against the search."""

from __future__ import annotations

import dataclasses

import pytest

from memc.ir.errors import UsageError
from memc.solvers.exact.recompute import MOST_OPS, solve_recompute
from memc.solvers.recompute import RecomputeProblem, measure_sequence, recompute_ladder

from ..test_recompute import drawn, sequences


def of_equal_overwrites(problem: RecomputeProblem) -> RecomputeProblem:
    """The problem in order, with only such values taken over as are as large as the result, as in functions."""
    sizes = problem.sizes
    over = [[v for v in row if sizes[v] == sizes[makes[0]]] for row, makes in zip(problem.over, problem.makes)]
    return dataclasses.replace(problem, over=over, in_order=True)


@pytest.mark.parametrize("seed", range(40))
def test_small_problems_are_solved_to_the_optimum(seed: int) -> None:
    """At each peak that some sequence has, no sequence is cheaper, and the proof says so; below all, there is none."""
    problem = of_equal_overwrites(drawn(2000 + seed, 5))
    best: dict[int, int] = {}
    for sequence in sequences(problem, 3):
        found = measure_sequence(problem, sequence)
        best[found.peak] = min(best.get(found.peak, found.added_cost), found.added_cost)
    for limit in sorted(best):
        optimum = min(cost for peak, cost in best.items() if peak <= limit)
        solution = solve_recompute(problem, limit)
        assert solution.lower_bound is not None
        assert solution.lower_bound <= optimum
        assert solution.plan is not None
        assert measure_sequence(problem, solution.plan.sequence) == solution.plan
        assert solution.plan.peak <= limit
        assert solution.proven_optimal
        # Only a sequence longer than those tried may be cheaper.
        repeats = len(solution.plan.sequence) - len(problem.costs)
        assert solution.plan.added_cost == optimum or (solution.plan.added_cost < optimum and repeats > 3)
    assert solve_recompute(problem, min(best) - 1).plan is None or min(best) > 3


@pytest.mark.parametrize("seed", range(12))
def test_never_costlier_than_the_search(seed: int) -> None:
    problem = of_equal_overwrites(drawn(seed, 14))
    plans = recompute_ladder(problem, 0)
    for limit in {plan.peak for plan in plans}:
        solution = solve_recompute(problem, limit)
        assert solution.plan is not None
        assert solution.lower_bound is not None
        assert solution.plan.peak <= limit
        assert solution.lower_bound <= solution.plan.added_cost
        assert solution.plan.added_cost <= min(plan.added_cost for plan in plans if plan.peak <= limit)


def test_proof_that_there_is_no_sequence() -> None:
    """Op 2 reads what 0 and 1 make, and makes as much."""
    problem = RecomputeProblem(
        sizes=[4, 4, 4],
        costs=[1, 1, 1],
        once=[False] * 3,
        scratch=[0] * 3,
        reads=[[], [], [0, 1]],
        makes=[[0], [1], [2]],
        over=[[], [], []],
        parts=[[], [], []],
        until=[[], [], []],
    )
    solution = solve_recompute(problem, 11)
    assert solution.plan is None
    assert solution.proven_impossible
    assert not solution.proven_optimal
    assert solve_recompute(problem, 12).proven_optimal


def test_without_work_the_search_is_what_is_found() -> None:
    problem = of_equal_overwrites(drawn(7, 30))
    plans = recompute_ladder(problem, 0)
    limit = (plans[0].peak + plans[-1].peak) // 2
    solution = solve_recompute(problem, limit, work=0)
    assert solution.plan is not None
    assert solution.plan.added_cost == min(plan.added_cost for plan in plans if plan.peak <= limit) > 0
    assert solution.lower_bound == 0


def test_the_result_depends_on_the_problem_only() -> None:
    problem = of_equal_overwrites(drawn(3, 24))
    limit = recompute_ladder(problem, 0)[-1].peak
    assert solve_recompute(problem, limit, work=0.2) == solve_recompute(problem, limit, work=0.2)


def test_too_many_ops() -> None:
    problem = drawn(1, MOST_OPS + 1)
    with pytest.raises(UsageError, match=r"at most 400 ops besides constants and views, got 401; use solver=search"):
        solve_recompute(problem, 10)


def two_results(scratch: int) -> RecomputeProblem:
    """Ops 0 and 1 make 10 bytes each for op 3; op 0 needs 15 bytes more while it runs and is cheap, op 2 needs `scratch`."""
    return RecomputeProblem(
        sizes=[10, 10, 1, 1],
        costs=[1, 5, 5, 5],
        once=[False, False, True, True],
        scratch=[15, 0, scratch, 0],
        reads=[[], [], [], [0, 1, 2]],
        makes=[[0], [1], [2], [3]],
        over=[[]] * 4,
        parts=[[]] * 4,
        until=[[]] * 4,
    )


def test_bytes_while_an_op_runs_again_count() -> None:
    """Only one result fits beside op 2. Recomputing 0's beside 1's takes 36 bytes."""
    solution = solve_recompute(two_results(15), 30)
    assert solution.proven_optimal
    assert solution.plan is not None
    assert solution.plan.sequence == (0, 1, 2, 1, 3)


def test_what_runs_again_before_one_op_is_put_in_order() -> None:
    """No result fits beside op 2. Both are recomputed, the first one first."""
    solution = solve_recompute(two_results(25), 30)
    assert solution.proven_optimal
    assert solution.plan is not None
    assert solution.plan.sequence == (0, 1, 2, 0, 1, 3)


def test_all_orders_of_what_runs_again_may_be_too_much() -> None:
    """As above, but 1 needs as much as 0 while it runs, so that the second one does not fit beside the first one's result."""
    problem = dataclasses.replace(two_results(25), scratch=[15, 15, 25, 0])
    assert measure_sequence(problem, (0, 1, 2, 0, 1, 3)).peak == 36
    refuted = solve_recompute(problem, 35)
    assert refuted.plan is None
    assert refuted.lower_bound == 7  # That one of them runs a third time is not refuted.
    assert solve_recompute(problem, 36).proven_optimal
