# SPDX-License-Identifier: Apache-2.0
"""The order solvers' problem: what a peak is, and what is refused."""

from __future__ import annotations

import pytest

from memc.passes.order_solvers import OrderProblem, order_peak, order_solver_names, solve_order

# op 0 makes a; 1 and 2 read it and make b and c; 3 reads both.
DIAMOND = OrderProblem([10, 20, 5], [[0], [0, 1], [0, 2], [1, 2]], [[], [0], [0], [1, 2]])


def test_peak_counts_what_an_op_touches_and_what_is_still_needed() -> None:
    assert order_peak(DIAMOND, [0, 1, 2, 3]) == 35
    assert order_peak(DIAMOND, [0, 2, 1, 3]) == 35


def test_a_kept_storage_lives_to_the_end() -> None:
    problem = OrderProblem([10, 20], [[0], [1]], [[], []], frozenset({0}))
    assert order_peak(problem, [0, 1]) == 30
    assert order_peak(problem, [1, 0]) == 20


def test_scratch_lives_during_its_op_only() -> None:
    problem = OrderProblem([10, 20], [[0], [1]], [[], []], scratch=[100, 0])
    assert order_peak(problem, [0, 1]) == 110


@pytest.mark.parametrize("solver", order_solver_names())
def test_no_solver_is_worse_than_the_given_order(solver: str) -> None:
    solution = solve_order(DIAMOND, solver)
    assert solution.peak == order_peak(DIAMOND, solution.order) == 35
    assert solution.lower_bound == 35 or not solution.proven_optimal


@pytest.mark.parametrize(
    "problem, message",
    [
        (OrderProblem([1], [[0], [1]], [[], []]), "op 1: storage index 1 is not in"),
        (OrderProblem([1], [[0, 0]], [[]]), "op 0: storage index 0 is repeated"),
        (OrderProblem([1], [[0], [0]], [[1], []]), "op 0 depends on op 1, which is not before it"),
        (OrderProblem([-1], [[0]], [[]]), "storage 0: size must be"),
        (OrderProblem([1], [[0]], [[]], scratch=[-1]), "op 0: scratch must be"),
    ],
)
def test_malformed(problem: OrderProblem, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        solve_order(problem)


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 1, 3], [1, 0, 2, 3], [0, 1, 2, 4]])
def test_not_an_order(order: list[int]) -> None:
    with pytest.raises(ValueError, match="order"):
        order_peak(DIAMOND, order)


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match='no order solver "nonsense"; there are: auto'):
        solve_order(DIAMOND, "nonsense")
