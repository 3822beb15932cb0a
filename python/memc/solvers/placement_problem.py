# SPDX-License-Identifier: Apache-2.0
"""Problems of static storage allocation, and typed doors to their native solvers.

A problem is a list of buffers with sizes in bytes and half-open lifetimes; a solution gives each a byte offset so
that no two buffers share bytes while both are live. See `cpp/solvers/placement/solvers.h` for the solvers. A problem of very
many buffers is given as columns (`BufferColumns`), without an object for each buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from memc import native

from .arrays import tensor

MAX_BYTES = 2**63 - 1

Int64s = npt.NDArray[np.int64]


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


class BufferColumns(Sequence[Buffer]):
    """Buffers held as four arrays of one length; reads like a list of `Buffer`.

    Units are those of `Buffer`; `offsets` has -1 where a buffer may lie anywhere, and is left out if all may. Raises
    ValueError if the columns are not one-dimensional, of one length and of integers.
    """

    def __init__(
        self, sizes: npt.ArrayLike, lowers: npt.ArrayLike, uppers: npt.ArrayLike, offsets: npt.ArrayLike | None = None
    ) -> None:
        self.sizes = _column(sizes, "sizes")
        self.lowers = _column(lowers, "lowers")
        self.uppers = _column(uppers, "uppers")
        free = np.full(len(self.sizes), -1, np.int64)
        self.offsets = free if offsets is None else _column(offsets, "offsets")
        for name, column in (("lowers", self.lowers), ("uppers", self.uppers), ("offsets", self.offsets)):
            if len(column) != len(self.sizes):
                raise ValueError(f"{name}: expected {len(self.sizes)} values, one for each size, got {len(column)}")
        if (wrong := np.flatnonzero(self.offsets < -1)).size:
            raise ValueError(f"buffer {wrong[0]}: fixed offset {self.offsets[wrong[0]]} is negative")

    @staticmethod
    def of(buffers: Sequence[Buffer]) -> BufferColumns:
        """The buffers as columns; themselves if they are columns."""
        if isinstance(buffers, BufferColumns):
            return buffers
        for index, buffer in enumerate(buffers):
            if buffer.offset is not None and buffer.offset < 0:
                raise ValueError(f"buffer {index}: fixed offset {buffer.offset} is negative")
        return BufferColumns(
            np.array([b.size for b in buffers], np.int64),
            np.array([b.lower for b in buffers], np.int64),
            np.array([b.upper for b in buffers], np.int64),
            np.array([-1 if b.offset is None else b.offset for b in buffers], np.int64),
        )

    def take(self, indices: Int64s) -> BufferColumns:
        """The buffers at these indices, in their order."""
        return BufferColumns(*(column[indices] for column in (self.sizes, self.lowers, self.uppers, self.offsets)))

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> Buffer: ...
    @overload
    def __getitem__(self, index: slice) -> BufferColumns: ...
    def __getitem__(self, index: int | slice) -> Buffer | BufferColumns:
        if isinstance(index, slice):
            return BufferColumns(self.sizes[index], self.lowers[index], self.uppers[index], self.offsets[index])
        offset = int(self.offsets[index])
        fixed = None if offset < 0 else offset
        return Buffer(int(self.sizes[index]), int(self.lowers[index]), int(self.uppers[index]), fixed)


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
    problem: Problem, solver: str, *, time_limit: float | None = None, threads: int | None = None
) -> Solution:
    """A plan by a solver of the native library; the parameters are those of `solve`."""
    offsets = np.zeros(len(problem.buffers), np.int64)
    limits = (-1.0 if time_limit is None else time_limit, threads or 0)
    arguments = (*_arguments(problem), problem.capacity, *limits, tensor(offsets))
    peak, bound = native.load()["memc_solve"](solver, *arguments)
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


def _arguments(problem: Problem) -> tuple[Any, ...]:
    columns = BufferColumns.of(problem.buffers)
    arrays = (columns.sizes, columns.lowers, columns.uppers, columns.offsets)
    return (*(tensor(array) for array in arrays), problem.alignment)


def _column(values: npt.ArrayLike, name: str) -> Int64s:
    """A contiguous column of integers."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)  # An empty list makes an array of reals.
    if array.ndim != 1 or not np.can_cast(array.dtype, np.int64):
        raise ValueError(f"{name}: expected one dimension of integers up to 64 bits, got {array.ndim} of {array.dtype}")
    return np.ascontiguousarray(array, np.int64)
