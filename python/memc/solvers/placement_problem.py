# SPDX-License-Identifier: Apache-2.0
"""Problems of static storage allocation, and typed doors to their native solvers.

A problem is a list of buffers with sizes in bytes and half-open lifetimes, which may have gaps; a solution gives each a
byte offset so that no two buffers share bytes while both are live. See `cpp/solvers/placement/solvers.h` for the
solvers. A problem of very many buffers is given as columns (`BufferColumns`), without an object for each buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from memc import native

from .arrays import rows, tensor
from .buffers import Buffer, BufferColumns, Int64s
from .watching import watched

MAX_BYTES = 2**63 - 1


@dataclass(frozen=True)
class Problem:
    """What to place."""

    buffers: Sequence[Buffer]
    alignment: int = 1
    """Bytes: offsets are multiples of it, and sizes are rounded up to it. A buffer may have an alignment of its own, a
    multiple of this one."""
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

    def offset_array(self) -> Int64s:
        """`offsets` as an array."""
        return np.array(self.offsets, np.int64)


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


def native_solvers() -> list[str]:
    """The solvers of the native library."""
    return [str(name) for name in native.load()["memc_solver_names"]()]


def solve_native(
    problem: Problem,
    solver: str,
    *,
    time_limit: float | None = None,
    threads: int | None = None,
    one_round: bool = False,
) -> Solution:
    """A plan by a solver of the native library; the parameters are those of `solve`. With `one_round` a search ends after a small
    part of its work; all of it lowers the peak found then, or leaves it."""
    offsets = np.zeros(len(problem.buffers), np.int64)
    limits = (-1.0 if time_limit is None else time_limit, threads or 0)
    arguments = (*_arguments(problem), problem.capacity, *limits, one_round)
    solve = native.load()["memc_solve"]
    peak, bound = watched("addresses", lambda watch: solve(solver, *arguments, watch, tensor(offsets)), time_limit)
    return Solution(tuple(offsets.tolist()), int(peak), int(bound))


def lower_bound(problem: Problem) -> int:
    """Bytes of the largest set of buffers live at one time, sizes rounded up: no plan has a lower peak."""
    return int(native.load()["memc_lower_bound"](*_arguments(problem)))


def check(problem: Problem, solution: Solution, *, by_definition: bool = False) -> CheckResult:
    """Whether the plan is valid. A sweep; `by_definition` compares all pairs instead, for tests.

    Raises ValueError for a malformed problem.
    """
    offsets = tensor(solution.offset_array())
    code, first, second = native.load()["memc_check"](
        *_arguments(problem), problem.capacity, offsets, solution.peak, by_definition
    )
    indices = (None if index < 0 else int(index) for index in (first, second))
    return CheckResult(Violation(code), *indices)


@dataclass(frozen=True)
class Conflict:
    """Buffers that do not fit into the problem's capacity."""

    buffers: tuple[int, ...]
    """Their indices, ascending."""
    moment: int | None
    """The time step at which all of them are live and together exceed the capacity, if there is one."""
    proven: bool
    """Whether it is proven that they do not fit; otherwise no plan of theirs was found."""
    minimal: bool
    """Whether they fit as soon as any one of them is left out."""


def find_conflict(problem: Problem, *, time_limit: float | None = None, threads: int | None = None) -> Conflict | None:
    """Buffers that do not fit into the problem's capacity, as few as found; None if a plan for all is found.

    Where a live set exceeds the capacity, they are the largest of the largest live set, as few as exceed it. Otherwise
    buffers are left out, many at a time and then one by one, as long as no plan for the others is found. At most 256
    subsets are searched, each with 1/64 of the work of a full search (20 s in all, or `time_limit` seconds); for more than
    20,000 buffers none is, and all are returned. Raises as `solve`.
    """
    limits = (-1.0 if time_limit is None else time_limit, threads or 0)
    arguments = (*_arguments(problem), problem.capacity, *limits)
    find = native.load()["memc_find_conflict"]
    found = watched("what does not fit", lambda watch: find(*arguments, watch), time_limit)
    moment, exists, proven, minimal, *buffers = (int(number) for number in found)
    if not buffers:
        return None
    return Conflict(tuple(buffers), moment if exists else None, bool(proven), bool(minimal))


def _arguments(problem: Problem) -> tuple[Any, ...]:
    columns = BufferColumns.of(problem.buffers)
    own = np.zeros(0, np.int64)
    if columns.alignments is not None:
        own = np.where(columns.alignments == 0, problem.alignment, columns.alignments)
    arrays = (columns.sizes, columns.lowers, columns.uppers, columns.offsets, own)
    none = tensor(np.zeros(0, np.int64))
    lives = (none, none)
    if columns.lives is not None:
        lives = rows([[time for interval in intervals for time in interval] for intervals in columns.lives])
    return (*(tensor(array) for array in arrays), *lives, problem.alignment)
