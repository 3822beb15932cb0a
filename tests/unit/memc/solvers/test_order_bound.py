# SPDX-License-Identifier: Apache-2.0
"""Bounds on the peak over all orders, against brute force over the sets of ops that can have run."""

from __future__ import annotations

import pytest

from memc.solvers.order import OrderProblem, least_live, order_lower_bound, solve_order

from .order_cases import closed_sets, live_at, lowest_peak, random_order_problem

SEEDS = range(150)


@pytest.mark.parametrize("seed", SEEDS)
def test_least_live_is_the_minimum_over_all_orders(seed: int) -> None:
    problem = random_order_problem(seed)
    ops = range(len(problem.touches))
    states = list(closed_sets(problem))
    expected = [
        min(live_at(problem, done, op) for done in states if op not in done and done.issuperset(problem.after[op]))
        for op in ops
    ]
    assert least_live(problem) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_is_the_largest_cut_and_below_every_peak(seed: int) -> None:
    problem = random_order_problem(seed)
    bound = order_lower_bound(problem)
    assert bound == max(least_live(problem))
    assert bound <= lowest_peak(problem)


def test_work_is_bounded_and_a_bound_returned_anyway() -> None:
    problem = random_order_problem(3)
    own = max(
        sum(problem.sizes[s] for s in touched) + scratch
        for touched, scratch in zip(problem.touches, problem.scratch, strict=True)
    )
    assert own == order_lower_bound(problem, work=0) < order_lower_bound(problem)


@pytest.mark.parametrize("seed", range(30))
def test_a_bound_cut_short_anywhere_is_a_bound(seed: int) -> None:
    problem = random_order_problem(seed)
    full = order_lower_bound(problem)
    bounds = [order_lower_bound(problem, work=work) for work in range(400)]
    assert bounds == sorted(bounds) and bounds[-1] <= full
    assert order_lower_bound(problem, time_limit=0) == bounds[0]
    assert order_lower_bound(problem, work=0, time_limit=60) == full


def test_a_chain_beside_a_large_storage() -> None:
    # Op 0 makes the large storage, op 3 reads it. Ops 1 and 2 lie between: it is live in any order.
    problem = OrderProblem([100, 1, 1], [[0, 1], [1], [1, 2], [0, 2]], [[], [0], [1], [2]])
    assert least_live(problem) == [101, 101, 102, 101]
    assert order_lower_bound(problem) == 102 == solve_order(problem).peak


def test_sizes_too_large_to_add_up() -> None:
    # A hundred stores of 10^18 bytes, one after another: no order needs more than one.
    problem = OrderProblem([10**18] * 100, [[i] for i in range(100)], [[] for _ in range(100)])
    assert order_lower_bound(problem) == 10**18
    with pytest.raises(OverflowError, match="exceeds"):
        least_live(problem)


def test_the_order_is_checked() -> None:
    problem = OrderProblem([1], [[0], [0]], [[], [0]])
    with pytest.raises(ValueError, match="order"):
        order_lower_bound(problem, [1, 0])
