# SPDX-License-Identifier: Apache-2.0
"""Operator order by any solver, by name."""

from __future__ import annotations

from .order_problem import (
    MAX_BYTES,
    WORK,
    OrderProblem,
    OrderSolution,
    least_live,
    native_order_solvers,
    order_lower_bound,
    order_peak,
    solve_order_native,
)

__all__ = [
    "MAX_BYTES",
    "WORK",
    "OrderProblem",
    "OrderSolution",
    "least_live",
    "order_lower_bound",
    "order_peak",
    "order_solver_names",
    "solve_order",
]


def order_solver_names() -> list[str]:
    """What `solve_order` accepts, sorted."""
    return sorted(["ilp", *native_order_solvers()])


def solve_order(
    problem: OrderProblem,
    solver: str = "auto",
    *,
    time_limit: float | None = None,
    beam_width: int = 64,
    target: int = 0,
    work: int = WORK,
    slack: float = 0.0,
    worth: int = MAX_BYTES,
) -> OrderSolution:
    """An order whose peak is never above the given one's.

    Without `time_limit` (seconds), work is bounded by count, and the result is the same on every machine. A solver may
    stop once the peak is at most `target` bytes. `auto` takes about `work` steps at most (10**8 take a second), and
    also stops once the peak is no more than the fraction `slack` above the lower bound, or once no order has fewer than
    `worth` bytes. Raises ValueError for a malformed problem or an unknown solver,
    OverflowError for sums beyond 2**63 - 1 bytes.
    """
    if solver == "ilp":
        from .exact.order_ilp import solve_order_ilp  # It may load CP-SAT, which takes longer than most orders.

        return solve_order_ilp(problem, time_limit, beam_width, target)
    if solver not in order_solver_names():
        raise ValueError(f'no order solver "{solver}"; there are: {", ".join(order_solver_names())}')
    return solve_order_native(problem, solver, time_limit, beam_width, target, work, slack, worth)
