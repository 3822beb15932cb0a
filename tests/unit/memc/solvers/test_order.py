# SPDX-License-Identifier: Apache-2.0
"""The order solvers: what a peak is, what is refused, and what every solver promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memc.solvers.order import OrderProblem, order_peak, order_solver_names, solve_order

from .order_cases import lowest_peak, random_order_problem

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


@st.composite
def order_problems(draw: st.DrawFn, max_ops: int) -> OrderProblem:
    """Storages touched by any ops, whether or not these depend on each other."""
    ops = draw(st.integers(1, max_ops))
    storages = draw(st.integers(0, 2 * ops))

    def subset(limit: int, size: int = 4) -> list[int]:
        return draw(st.lists(st.integers(0, limit - 1), max_size=size, unique=True)) if limit else []

    sizes = draw(st.lists(st.integers(0, 30), min_size=storages, max_size=storages))
    scratch = draw(st.lists(st.sampled_from([0, 0, 7, 20]), min_size=ops, max_size=ops))
    touches = [subset(storages) for _ in range(ops)]
    after = [subset(op, 3) for op in range(ops)]
    return OrderProblem(sizes, touches, after, frozenset(subset(storages)), scratch)


@given(order_problems(30), st.integers(1, 20))
def test_orders_are_valid_and_never_above_the_given_one(problem: OrderProblem, beam_width: int) -> None:
    given_peak = order_peak(problem, range(len(problem.touches)))
    for solver in order_solver_names():
        solution = solve_order(problem, solver, beam_width=beam_width)
        assert order_peak(problem, solution.order) == solution.peak, solver
        assert solution.lower_bound <= solution.peak <= given_peak, solver


@given(order_problems(7), st.integers(1, 4), st.integers(0, 50))
def test_bounds_and_peaks_hold_the_optimum_between_them(problem: OrderProblem, beam_width: int, slack: int) -> None:
    lowest = lowest_peak(problem)
    for solver in order_solver_names():
        solution = solve_order(problem, solver, beam_width=beam_width)
        assert solution.lower_bound <= lowest <= solution.peak, solver
    solution = solve_order(problem)
    assert solution.peak == solution.lower_bound == lowest
    assert solve_order(problem, target=lowest + slack).peak <= lowest + slack
    assert solve_order(problem, slack=slack / 50).peak <= lowest * (1 + slack / 50)
    assert solve_order(problem, worth=lowest + slack).peak >= lowest
    assert solve_order(problem, worth=lowest + 1).peak == lowest


@given(order_problems(20))
def test_a_time_limit_of_nothing_still_gives_an_order(problem: OrderProblem) -> None:
    solution = solve_order(problem, time_limit=0)
    assert order_peak(problem, solution.order) == solution.peak


def test_list_scheduling_frees_before_it_allocates() -> None:
    """Two chains of a large tensor that shrinks: the given order holds both large ones."""
    problem = OrderProblem([100, 1, 100, 1], [[0], [2], [0, 1], [2, 3], [1, 3]], [[], [], [0], [1], [2, 3]])
    assert order_peak(problem, range(5)) == 201
    solution = solve_order(problem, "list")
    assert (solution.order, solution.peak) == ((0, 2, 1, 3, 4), 102)


def test_depth_first_follows_a_branch_until_it_meets_another() -> None:
    """0 forks into 1, 3 and 2, 4; 5 joins them. The given order goes by levels."""
    problem = OrderProblem(
        [1, 50, 50, 1, 1, 1],
        [[0], [0, 1], [0, 2], [1, 3], [2, 4], [3, 4, 5]],
        [[], [0], [0], [1], [2], [3, 4]],
    )
    assert solve_order(problem, "dfs").order == (0, 1, 3, 2, 4, 5)


# 1 brings the fewest bytes to life, but it keeps them until 3, while 0 and 2 need as much as can be spared.
GREEDY_TRAP = OrderProblem([40, 5, 13], [[0], [1, 2], [0, 2], [1, 2]], [[], [], [], [2]], scratch=[0, 0, 0, 0])


def test_a_beam_finds_what_list_scheduling_misses() -> None:
    assert solve_order(GREEDY_TRAP, "list").peak > solve_order(GREEDY_TRAP, "beam").peak == lowest_peak(GREEDY_TRAP)


def test_less_work_and_lower_hopes_leave_a_worse_order() -> None:
    problem = random_order_problem(0, max_ops=30)
    best = solve_order(problem)
    assert best.proven_optimal and best.work > 0
    for options in ({"work": 0}, {"slack": 0.5}, {"worth": 1}):
        found = solve_order(problem, **options)
        assert found.peak > best.peak and found.work < best.work


def test_local_search_mends_a_window() -> None:
    assert solve_order(GREEDY_TRAP, "local").peak == lowest_peak(GREEDY_TRAP)


def test_sums_too_large_to_search_with_leave_the_given_order() -> None:
    huge = 2**61
    problem = OrderProblem([huge, huge, huge], [[0], [1], [0, 1], [2]], [[], [], [0, 1], [2]])
    solution = solve_order(problem)
    assert (solution.order, solution.peak) == ((0, 1, 2, 3), 2**62)


@pytest.mark.parametrize("solver", order_solver_names())
def test_no_ops(solver: str) -> None:
    solution = solve_order(OrderProblem([5], [], []), solver)
    assert (solution.order, solution.peak, solution.lower_bound) == ((), 0, 0)


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
    with pytest.raises(ValueError, match='no order solver "nonsense"; there are: auto, .*ilp'):
        solve_order(DIAMOND, "nonsense")
