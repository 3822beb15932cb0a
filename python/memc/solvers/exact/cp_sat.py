# SPDX-License-Identifier: Apache-2.0
"""CP-SAT within a limit: of wall time, or of deterministic work."""

from __future__ import annotations

import time
from typing import Any

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

    def solve(self, model: Any, **parameters: bool | int) -> tuple[Any, Any]:
        """The solver after its run with some parameters of CP-SAT's, and its status."""
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
        status = solver.solve(model)
        self._work = max(self._work - solver.response_proto.deterministic_time, 0.0)
        return solver, status
