# SPDX-License-Identifier: Apache-2.0
"""Address assignment by any solver, by name."""

from __future__ import annotations

from .buffers import Buffer, BufferColumns, Lives
from .placement_problem import (
    MAX_BYTES,
    CheckResult,
    Conflict,
    Problem,
    Solution,
    Violation,
    check,
    find_conflict,
    lower_bound,
    native_solvers,
    solve_native,
)

__all__ = [
    "MAX_BYTES",
    "Buffer",
    "BufferColumns",
    "CheckResult",
    "Conflict",
    "Lives",
    "Problem",
    "Solution",
    "Violation",
    "check",
    "find_conflict",
    "lower_bound",
    "solve",
    "solver_names",
]


def solver_names() -> list[str]:
    """What `solve` accepts, sorted."""
    return sorted(["mip", *native_solvers()])


def solve(
    problem: Problem, solver: str = "auto", *, time_limit: float | None = None, threads: int | None = None
) -> Solution:
    """A valid plan by the named solver; `auto` runs all heuristics and then searches.

    Without `time_limit` (seconds), work is bounded by count, and the plan is the same on every machine and with any
    number of `threads` (default: one for each core). Raises ValueError for a malformed problem or an unknown solver (the
    message lists the known ones), OverflowError if the plan would need more than 2**63 - 1 bytes.
    """
    if solver == "mip":
        from .exact.placement_mip import solve_mip  # It loads CP-SAT, which takes longer than most plans.

        return solve_mip(problem, time_limit, threads)
    if solver not in solver_names():
        raise ValueError(f'no solver "{solver}"; there are: {", ".join(solver_names())}')
    return solve_native(problem, solver, time_limit=time_limit, threads=threads)
