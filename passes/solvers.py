# SPDX-License-Identifier: Apache-2.0
"""Typed doors to the native solvers of static storage allocation.

A problem is a list of buffers with sizes in bytes and half-open lifetimes; a solution gives each a byte offset so
that no two buffers share bytes while both are live. See `cpp/include/memc/solvers.h` for the solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from memc import native

MAX_BYTES = 2**63 - 1


@dataclass(frozen=True)
class Buffer:
    """A rectangle of bytes and time steps."""

    size: int
    """Bytes, 0 to 2**62."""
    lower: int
    """First time step at which it is live."""
    upper: int
    """Time step after the last; greater than `lower`."""
    offset: int | None = None
    """Bytes from the arena's start if it must lie there (a multiple of the alignment)."""


@dataclass(frozen=True)
class Problem:
    """What to place."""

    buffers: Sequence[Buffer]
    alignment: int = 1
    """Bytes: offsets are multiples of it, and sizes are rounded up to it."""
    capacity: int = MAX_BYTES
    """Bytes a valid plan may use. Solvers minimize the peak whatever the capacity; `check` compares."""


@dataclass(frozen=True)
class Solution:
    """Where each buffer lies."""

    offsets: tuple[int, ...]
    """Bytes from the arena's start, one for each buffer, in order."""
    peak: int
    """Bytes: the greatest offset + rounded size."""
    lower_bound: int = 0
    """Bytes: no plan has a lower peak."""

    @property
    def proven_optimal(self) -> bool:
        return self.peak == self.lower_bound


class Violation(IntEnum):
    """What is wrong with a plan."""

    NONE = 0
    WRONG_COUNT = 1
    """Not one offset for each buffer."""
    NEGATIVE = 2
    MISALIGNED = 3
    MOVED = 4
    """A buffer with a fixed offset lies elsewhere."""
    OVER_CAPACITY = 5
    OVERLAP = 6
    """Two buffers share bytes while both are live."""
    WRONG_PEAK = 7
    """The stated peak is not the greatest end."""


@dataclass(frozen=True)
class CheckResult:
    """The first violation found."""

    violation: Violation
    first: int | None = None
    """Index of the offending buffer."""
    second: int | None = None
    """Index of the buffer it overlaps with."""

    @property
    def ok(self) -> bool:
        return self.violation is Violation.NONE


def solver_names() -> list[str]:
    """What `solve` accepts, sorted."""
    return sorted(["mip", *(str(name) for name in native.load()["memc_solver_names"]())])


def solve(
    problem: Problem, solver: str = "auto", *, time_limit: float | None = None, threads: int | None = None
) -> Solution:
    """A valid plan by the named solver; `auto` runs all heuristics and then searches.

    Without `time_limit` (seconds), work is bounded by count, and the plan is the same on every machine and with any
    number of `threads` (default: one for each core). Raises ValueError for a malformed problem or an unknown solver (the
    message lists the known ones), OverflowError if the plan would need more than 2**63 - 1 bytes.
    """
    if solver == "mip":
        from .placement_mip import solve_mip  # It loads CP-SAT, which takes longer than most plans.

        return solve_mip(problem, time_limit, threads)
    offsets = np.zeros(len(problem.buffers), np.int64)
    limits = (-1.0 if time_limit is None else time_limit, threads or 0)
    arguments = (*_arguments(problem), problem.capacity, *limits, _tensor(offsets))
    peak, bound = native.load()["memc_solve"](solver, *arguments)
    return Solution(tuple(offsets.tolist()), int(peak), int(bound))


def lower_bound(problem: Problem) -> int:
    """Bytes of the largest set of buffers live at one time, sizes rounded up: no plan has a lower peak."""
    return int(native.load()["memc_lower_bound"](*_arguments(problem)))


def check(problem: Problem, solution: Solution, *, by_definition: bool = False) -> CheckResult:
    """Whether the plan is valid. A sweep; `by_definition` compares all pairs instead, for tests.

    Raises ValueError for a malformed problem.
    """
    offsets = _tensor(np.array(solution.offsets, np.int64))
    code, first, second = native.load()["memc_check"](
        *_arguments(problem), problem.capacity, offsets, solution.peak, by_definition
    )
    indices = (None if index < 0 else int(index) for index in (first, second))
    return CheckResult(Violation(code), *indices)


def _arguments(problem: Problem) -> tuple[Any, ...]:
    buffers = problem.buffers
    for index, buffer in enumerate(buffers):
        if buffer.offset is not None and buffer.offset < 0:
            raise ValueError(f"buffer {index}: fixed offset {buffer.offset} is negative")
    columns = (
        [b.size for b in buffers],
        [b.lower for b in buffers],
        [b.upper for b in buffers],
        [-1 if b.offset is None else b.offset for b in buffers],
    )
    return (*(_tensor(np.array(column, np.int64)) for column in columns), problem.alignment)


def _tensor(array: npt.NDArray[np.int64]) -> Any:
    """The array as a tensor over the same bytes."""
    return tvm_ffi.from_dlpack(array)
