# SPDX-License-Identifier: Apache-2.0
"""Typed doors to the native search for recomputation. See `cpp/solvers/recompute/recompute.h` for what a sequence means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memc import native
from memc.solvers.arrays import rows, tensor
from memc.solvers.watching import Watch, watched


@dataclass(frozen=True)
class RecomputeProblem:
    """Ops numbered in execution order, the values that they make and read, and what recomputing one costs."""

    sizes: Sequence[int]
    """Bytes of each value."""
    costs: Sequence[int]
    """The cost of each op, in any unit."""
    once: Sequence[bool]
    """Whether each op must not be recomputed."""
    scratch: Sequence[int]
    """Bytes live during each op only."""
    reads: Sequence[Sequence[int]]
    """The values that each op reads, made by ops before it, without repeats."""
    makes: Sequence[Sequence[int]]
    """The values that each op makes; each value is made by one op."""
    over: Sequence[Sequence[int]]
    """The values that each op reads whose bytes its first result may take over; the first that dies there is taken."""
    parts: Sequence[Sequence[int]]
    """The values that each op reads, none in `over`, that its first result holds side by side; all that die there
    are taken."""
    until: Sequence[Sequence[int]]
    """The later ops, which run once, after which each op must not run."""
    in_order: bool = False
    """Whether ops must run the first time in the order of their numbers."""


@dataclass(frozen=True)
class RecomputePlan:
    """A sequence in which ops run, some of them more than once."""

    sequence: tuple[int, ...]
    peak: int
    """Bytes."""
    added_cost: int
    """The cost of all runs but the first of each op."""


def recompute_ladder(problem: RecomputeProblem, lowest: int, bound: int = 0) -> list[RecomputePlan]:
    """Plans at falling limits, the first in the given order without recomputation, down to about `lowest` bytes or as low as
    was found. Each has a lower peak or less added cost than each one before it. No sequence may be below `bound` bytes.

    The same for every `lowest` but for its length. Raises ValueError for a malformed problem.
    """
    search = native.load()["memc_recompute_ladder"]
    plans = watched("recomputation", lambda watch: search(columns(problem, watch), lowest, bound))
    return [_plan(found) for found in plans]


def measure_sequence(problem: RecomputeProblem, sequence: Sequence[int]) -> RecomputePlan:
    """Peak and added cost of a sequence, by definition. Raises ValueError if it is none of the problem's."""
    found = native.load()["memc_measure_sequence"](columns(problem), tensor(np.array(sequence, np.int64)))
    return RecomputePlan(tuple(sequence), int(found[0]), int(found[1]))


def _plan(found: Any) -> RecomputePlan:
    peak, cost, *sequence = map(int, found)
    return RecomputePlan(tuple(sequence), peak, cost)


def columns(problem: RecomputeProblem, watch: Any = None) -> list[Any]:
    """The problem as native code takes it, with the numbers of a watch."""
    numbers = (problem.sizes, problem.costs, problem.once, problem.scratch)
    columns = [tensor(np.array(column, np.int64)) for column in numbers]
    for table in (problem.reads, problem.makes, problem.over, problem.parts, problem.until):
        columns += rows(table)
    return [*columns, tensor(np.array([problem.in_order], np.int64)), Watch().numbers if watch is None else watch]
