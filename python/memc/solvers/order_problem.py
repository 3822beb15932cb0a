# SPDX-License-Identifier: Apache-2.0
"""Problems of operator order, and typed doors to their native solvers.

Ops touch storages; a storage is live from the first op that touches it to the last, or to the end if it is kept. The
peak of an order is the largest sum of live storages during any op, the op's scratch bytes included. See
`cpp/solvers/order/order.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memc import native

from .arrays import rows, tensor
from .watching import watched

WORK = 750_000_000
"""Steps that `auto` takes at most unless told otherwise."""

MAX_BYTES = 2**63 - 1


@dataclass(frozen=True)
class OrderProblem:
    """Ops numbered in a valid order (the given one), and what they touch."""

    sizes: Sequence[int]
    """Bytes of each storage, 0 to 2**62."""
    touches: Sequence[Sequence[int]]
    """Of each op: the storages it reads or writes, without repeats."""
    after: Sequence[Sequence[int]]
    """Of each op: the ops, all of lower number, that must have run before it, without repeats."""
    kept: frozenset[int] = frozenset()
    """Storages that stay live to the end."""
    scratch: Sequence[int] = ()
    """Of each op: bytes live during that op only; empty for none at all."""


@dataclass(frozen=True)
class OrderSolution:
    """In which sequence the ops run."""

    order: tuple[int, ...]
    """Op numbers in execution order."""
    peak: int
    """Bytes."""
    lower_bound: int
    """Bytes: no order has a lower peak."""
    work: int = 0
    """Steps that `auto` took."""

    @property
    def proven_optimal(self) -> bool:
        return self.peak == self.lower_bound


def native_order_solvers() -> list[str]:
    """The solvers of the native library."""
    return [str(name) for name in native.load()["memc_order_solver_names"]()]


def solve_order_native(
    problem: OrderProblem,
    solver: str,
    time_limit: float | None = None,
    beam_width: int = 64,
    target: int = 0,
    work: int = WORK,
    slack: float = 0.0,
    worth: int = MAX_BYTES,
) -> OrderSolution:
    """An order by a solver of the native library; the parameters are those of `solve_order`."""
    order = np.zeros(len(problem.touches), np.int64)
    limit = -1.0 if time_limit is None else time_limit
    arguments = (*_arguments(problem), limit, beam_width, target, work, slack, worth)
    solve = native.load()["memc_solve_order"]
    peak, bound, used = watched("order", lambda watch: solve(solver, *arguments, watch, tensor(order)), time_limit)
    return OrderSolution(tuple(order.tolist()), int(peak), int(bound), int(used))


def order_peak(problem: OrderProblem, order: Sequence[int]) -> int:
    """Peak of `order` in bytes. Raises ValueError if it is not an order of the ops that keeps their dependencies."""
    return int(native.load()["memc_order_peak"](*_arguments(problem), tensor(np.array(order, np.int64))))


def order_lower_bound(
    problem: OrderProblem, order: Sequence[int] | None = None, *, work: int = 10**9, time_limit: float | None = None
) -> int:
    """Bytes that no order's peak is below: the largest of `least_live`, stopping early where an order proves the rest
    irrelevant.

    `order` is a valid order, the given one by default; the lower its peak, the less there is to do. After about `work`
    steps (10**8 take a second), or `time_limit` seconds if that is given, the bound found so far is returned. Raises as
    `order_peak`.
    """
    given = range(len(problem.touches)) if order is None else order
    at = tensor(np.array(given, np.int64))
    limit = -1.0 if time_limit is None else time_limit
    return int(native.load()["memc_order_lower_bound"](*_arguments(problem), at, work, limit))


def least_live(problem: OrderProblem) -> list[int]:
    """Of each op: the fewest bytes live while it runs, its scratch included, over all orders.

    One minimum cut for each op. Raises OverflowError if all sizes together exceed 2**62 bytes.
    """
    least = np.zeros(len(problem.touches), np.int64)
    native.load()["memc_order_least_live"](*_arguments(problem), tensor(least))
    return [int(bytes_) for bytes_ in least]


def _arguments(problem: OrderProblem) -> tuple[Any, ...]:
    kept = np.zeros(len(problem.sizes), np.int64)
    kept[list(problem.kept)] = 1
    scratch = problem.scratch or [0] * len(problem.touches)
    return (
        tensor(np.array(problem.sizes, np.int64)),
        tensor(kept),
        *rows(problem.touches),
        *rows(problem.after),
        tensor(np.array(scratch, np.int64)),
    )
