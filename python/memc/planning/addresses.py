# SPDX-License-Identifier: Apache-2.0
"""Addresses for tensors, each memory space on its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Union

import numpy as np

from memc.ir.errors import InvalidError, UsageError
from memc.ir.sizes import format_size
from memc.ir.spaces import ARENA
from memc.passes.budget import Budget
from memc.solvers.placement import MAX_BYTES, BufferColumns, Problem, Solution, Violation, check, solve

from .plans import Plan, SpacePlan
from .tensors import Int64s, Tensor, TensorColumns, blocks_of, shown
from .unfit import CapacityError, find_unfit

Limit = Union[int, Budget]
"""Bytes, or a share of what the tensors of a space have together."""


@dataclass
class Placing:
    """How the spaces are placed, and what was placed there."""

    name: str
    """Of the source, in errors."""
    alignment: int
    solver: str
    time_limit: float | None
    """Seconds that are left."""
    threads: int | None
    problems: list[tuple[Problem, list[str]]] = field(default_factory=list)
    """Of each space, with the names of its buffers."""

    def place(
        self, tensors: Sequence[Tensor], first_line: int | None, capacity: Limit | Mapping[str, Limit] | None
    ) -> Plan:
        """Place each space on its own. A space that is over its capacity stays so; the caller sees to it."""
        columns = TensorColumns.of(tensors, self.name)
        blocks = blocks_of(columns, self.name, first_line)
        buffers = blocks.buffers
        at = np.full(len(buffers), -1, np.int64)
        names, number = _numbered(blocks.spaces)
        limits = _capacities(capacity, names)
        firsts = np.arange(len(columns)) if columns.aliases is None else _roots(columns)
        spaces: list[SpacePlan] = []
        for index, space in enumerate(names):
            members = np.flatnonzero(number == index) if len(names) > 1 else np.arange(len(buffers))
            own = buffers.take(members)
            limit = _bytes(limits.get(space), own)
            problem = _problem(own, self.alignment, MAX_BYTES if limit is None else limit, self.name)
            ids = [columns.ids[first] for first in firsts[members].tolist()]
            self.problems.append((problem, ids))
            share = None if self.time_limit is None else self.time_limit / (len(names) - index)
            solution = self._solve(problem, ids, share)
            at[members] = solution.offset_array()
            spaces.append(SpacePlan(space, None, solution.peak, {}, solution.lower_bound, limit))
        offsets: list[int] = (at[blocks.block] + blocks.within).tolist()
        return Plan(0.0, self.solver, tensors, offsets, spaces)

    def _solve(self, problem: Problem, ids: Sequence[str], share: float | None) -> Solution:
        began = time.perf_counter()
        solution = solve(problem, self.solver, time_limit=share, threads=self.threads)
        if self.time_limit is not None:
            self.time_limit = max(0.0, self.time_limit - (time.perf_counter() - began))
        verdict = check(replace(problem, capacity=MAX_BYTES), solution)
        if not verdict.ok:
            pair = [i for i in (verdict.first, verdict.second) if i is not None]
            if verdict.violation is Violation.OVERLAP and all(problem.buffers[i].offset is not None for i in pair):
                both = " and ".join(shown(ids[i]) for i in pair)
                raise InvalidError(f"{self.name}: offset: tensors {both} overlap where they are pre-placed")
            raise RuntimeError(f"solver {self.solver} returned an invalid plan: {verdict}")
        return solution

    def keep_capacity(self, result: Plan, reordered: bool) -> None:
        """Raise CapacityError if a space is over its capacity. It names tensors that do not fit in the order found."""
        for space, (problem, ids) in zip(result.spaces, self.problems):
            if space.capacity is None or space.peak <= space.capacity:
                continue
            unfit = find_unfit(problem, ids, space.name, self.time_limit, self.threads)
            proven = (space.lower_bound or 0) > space.capacity or (unfit is not None and unfit.proven and not reordered)
            verdict = "proven not to fit" if proven else "not proven impossible"
            raise CapacityError(
                f"{self.name}: capacity of {space.capacity} bytes ({format_size(space.capacity)}) of {space.name} is not "
                f"met: the least peak found is {space.peak} bytes, the lower bound {space.lower_bound}; {verdict}"
                + ("" if unfit is None else f"; {'in the order found, ' if reordered else ''}{unfit.text()}"),
                unfit,
            )


def _roots(columns: TensorColumns) -> Int64s:
    """Of each block, the tensor that is no alias."""
    return np.array([index for index, alias in enumerate(columns.aliases or ()) if not alias], np.int64)


def _problem(buffers: BufferColumns, alignment: int, capacity: int, name: str) -> Problem:
    """The buffers of a space, with the greatest alignment that all of theirs are multiples of."""
    own = buffers.alignments
    if own is not None:
        own = np.where(own == 0, alignment, own)
        buffers = BufferColumns(buffers.sizes, buffers.lowers, buffers.uppers, buffers.offsets, buffers.lives, own)
        alignment = int(np.gcd.reduce(own))
    _fixed_are_aligned(buffers, alignment, name)
    return Problem(buffers, alignment, capacity)


def _numbered(spaces: Sequence[str] | None) -> tuple[list[str], Int64s]:
    """The names of the spaces, and of each block the number of its space."""
    if not spaces:
        return [ARENA], np.zeros(0, np.int64)
    index = {name: number for number, name in enumerate(dict.fromkeys(spaces))}
    return list(index), np.array([index[space] for space in spaces], np.int64)


def _fixed_are_aligned(buffers: BufferColumns, alignment: int, name: str) -> None:
    steps = np.full(len(buffers), alignment, np.int64) if buffers.alignments is None else buffers.alignments
    for index in np.flatnonzero((buffers.offsets >= 0) & (buffers.offsets % steps != 0))[:1]:
        raise InvalidError(
            f"{name}: offset: expected multiples of the alignment {steps[index]}, got {buffers.offsets[index]}"
        )


def _bytes(limit: Limit | None, buffers: BufferColumns) -> int | None:
    """A capacity in bytes, where it may be a share of what the buffers have together."""
    return limit.of(int(buffers.sizes.sum())) if isinstance(limit, Budget) else limit


def _capacities(capacity: Limit | Mapping[str, Limit] | None, names: Sequence[str]) -> dict[str, Limit]:
    if capacity is None:
        return {}
    if isinstance(capacity, (int, Budget)):
        if len(names) > 1:
            raise UsageError(f"capacity: expected one for each of the spaces {', '.join(names)}, got {capacity}")
        capacity = {names[0]: capacity}
    for name, size in capacity.items():
        if name not in names:
            raise UsageError(f"capacity: expected a space among {', '.join(names)}, got `{name}`")
        if isinstance(size, Budget):
            continue
        if type(size) is not int or not 0 <= size <= MAX_BYTES:
            raise UsageError(f"capacity: expected bytes from 0 to 2**63 - 1, got {size}")
    return dict(capacity)
