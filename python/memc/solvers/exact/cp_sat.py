# SPDX-License-Identifier: Apache-2.0
"""CP-SAT within a limit: of wall time, or of deterministic work."""

from __future__ import annotations

import time
from typing import Any

from memc.ir.progress import Reached
from memc.solvers.watching import watched_call

WORK = 2.0
"""Units of CP-SAT's deterministic clock without a time limit; a unit is up to 15 seconds of one core."""


class Limit:
    """What is left of a time limit (seconds, from now on) or, without one, of the work; several solves share it."""

    def __init__(self, time_limit: float | None, threads: int | None = None, work: float = WORK) -> None:
        self._end = None if time_limit is None else time.monotonic() + time_limit
        self._threads = threads
        self._work = work

    def left(self) -> float | None:
        """Seconds, or None without a time limit."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Whether nothing is left, of time or of work."""
        return self._work <= 0 if self._end is None else self.left() == 0

    def solve(self, model: Any, work: str, unit: int | None = None, **parameters: bool | int) -> tuple[Any, Any]:
        """The solver after its run with some parameters of CP-SAT's, and its status.

        Args:
            work: what it is, for who listens (`memc.ir.progress`).
            unit: bytes of one unit of the objective; None where that is not of bytes.
        """
        from ortools.sat.python import cp_model  # Takes longer to load than most plans to make.

        solver = cp_model.CpSolver()
        solver.parameters.random_seed = 0
        for name, value in parameters.items():
            setattr(solver.parameters, name, value)
        seconds = self.left()
        if seconds is None:
            # One worker: with several, which one is first would decide among equal plans.
            solver.parameters.num_workers = 1
            solver.parameters.max_deterministic_time = self._work
        else:
            solver.parameters.max_time_in_seconds = seconds
            if self._threads:
                solver.parameters.num_workers = self._threads
        solver.parameters.catch_sigint_signal = False  # CP-SAT would end as if its time were over.
        found = _Solutions(solver, unit)
        status = watched_call(work, lambda: solver.solve(model, found.callback), found, seconds)
        self._work = max(self._work - solver.response_proto.deterministic_time, 0.0)
        return solver, status


class _Solutions:
    """What CP-SAT has found so far."""

    def __init__(self, solver: Any, unit: int | None) -> None:
        from ortools.sat.python import cp_model

        class Callback(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
            """Keeps the objective of the latest solution, which is the best one."""

            best: float | None = None

            def on_solution_callback(self) -> None:
                self.best = self.objective_value

        self.callback = Callback()
        self._solver = solver
        self._unit = unit
        self._bound: float | None = None
        solver.best_bound_callback = self._on_bound

    def _on_bound(self, bound: float) -> None:
        self._bound = bound

    def cancel(self) -> None:
        """Have CP-SAT end, soon."""
        self._solver.stop_search()

    def reached(self, work: str, seconds: float, time_limit: float | None) -> Reached:
        """What there is to tell after some seconds of it."""
        left = None if time_limit is None else max(time_limit - seconds, 0.0)
        share = min(seconds / time_limit, 1.0) if time_limit else None
        return Reached(work, share, self._bytes(self.callback.best), self._bytes(self._bound), left)

    def _bytes(self, value: float | None) -> int | None:
        return None if value is None or self._unit is None or value < 0 else round(value) * self._unit
