# SPDX-License-Identifier: Apache-2.0
"""The exact order search, against dynamic programming over all sets of ops."""

from __future__ import annotations

import pytest

from memc.solvers.order import OrderProblem, order_lower_bound, order_peak, solve_order

from .order_cases import lowest_peak, random_order_problem


@pytest.mark.parametrize("seed", range(300))
def test_exact_is_the_optimum_and_proven(seed: int) -> None:
    problem = random_order_problem(seed)
    solution = solve_order(problem, "exact")
    assert order_peak(problem, solution.order) == solution.peak
    assert solution.lower_bound == solution.peak == lowest_peak(problem)


def test_the_random_problems_need_the_search() -> None:
    problems = [random_order_problem(seed) for seed in range(300)]
    optima = [solve_order(problem, "exact").peak for problem in problems]
    assert sum(solve_order(p, "list").peak > peak for p, peak in zip(problems, optima, strict=True)) >= 5
    assert sum(order_lower_bound(p) < peak for p, peak in zip(problems, optima, strict=True)) >= 20


def test_beyond_its_limits_it_still_returns_an_order_and_a_bound() -> None:
    # Forty strands of two ops, whose sizes make every set of strands different: nothing dominates.
    sizes = [size for i in range(40) for size in (1000 + 7 * i, 300 + 11 * i)]
    touches = [[2 * i + j - k for k in range(j + 1)] for i in range(40) for j in range(2)]
    touches.append([2 * i + 1 for i in range(40)])
    after = [[2 * i] if j else [] for i in range(40) for j in range(2)]
    after.append([2 * i + 1 for i in range(40)])
    problem = OrderProblem(sizes, touches, after)
    solution = solve_order(problem, "exact", time_limit=0.0)
    assert order_peak(problem, solution.order) == solution.peak
    assert solution.lower_bound <= solution.peak <= order_peak(problem, range(81))
