# SPDX-License-Identifier: Apache-2.0
"""The integer programs of MODeL (Steiner et al. 2023): operator order, and order with addresses.

Equation numbers are the paper's. MODeL numbers its steps, and C[e, s] and P[e, s] say whether storage e is created or
preserved at step s. One op runs at each step, so here a step is named by the op that runs in it: `runs_first[u, v]`
says that step u comes before step v, and `live[e, v]` = C[e, v] + P[e, v]. This has no symmetric renumberings, and an
ASAP/ALAP span (10), a maximum useful lifetime (11), a preservation range (12) or a precedence (A.2) fixes variables
instead of shortening their ranges: `decide_pairs` finds all four, and more with the best peak known as the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cp_sat import Limit
from .order_precedence import Live, Look, Reduced, Relation, never, product, surely_live

MOST_LITERALS = 50_000
"""Undecided pairs of ops and of op and storage beyond which no program is built."""


@dataclass(frozen=True)
class Found:
    """What a program's solver found."""

    order: list[int] | None
    """Ops of the part, if there is an order below the bound it was given."""
    bound: int
    """Units: no order has a lower peak, unless it is above the program's bound."""


class OrderProgram:
    """Equations (1) to (5) over the ops of one part, and the peak of the resident sets instead of (8).

    Raises Expired if `look` does so before the program is built.
    """

    def __init__(
        self, problem: Reduced, before: Relation, part: Sequence[int], low: int, high: int, look: Look = never
    ) -> None:
        from ortools.sat.python import cp_model

        self.look = look
        self.problem, self.before, self.part, self.high = problem, before, list(part), high
        self.model = cp_model.CpModel()
        self.peak = self.model.new_int_var(low, high, "peak_mem")
        self.known = surely_live(problem, before, look)
        self.runs_first: dict[tuple[int, int], Any] = {}
        inside = before[np.ix_(self.part, self.part)]
        undecided = ~(inside | inside.T | np.eye(len(self.part), dtype=np.bool_))
        maybe = _maybe_live(problem, before, self.known, look)[self.part]
        self.literals = int(undecided.sum()) // 2 + int(maybe.sum())
        self.live: dict[tuple[int, int], Any] = {}
        if self.literals <= MOST_LITERALS:
            self._order(inside, undecided)
            self._resident_sets(maybe)
            self.model.minimize(self.peak)  # (9)

    def _order(self, inside: Relation, undecided: Relation) -> None:
        """One op at each step, in an order that respects the precedences: (3) to (5)."""
        size = len(self.part)
        # The span (10): how many ops surely run before and after is never wider than the longest paths say.
        earliest, latest = inside.sum(axis=0), size - 1 - inside.sum(axis=1)
        self.step = [self.model.new_int_var(int(a), int(b), "") for a, b in zip(earliest, latest)]
        counts = inside.astype(np.float32)
        for u, v in zip(*np.nonzero(inside & ~(product(counts, counts, self.look) > 0))):
            self.model.add(self.step[u] < self.step[v])
        for u, v in zip(*np.nonzero(np.triu(undecided))):
            self.look()
            first = self.model.new_bool_var("")
            self.model.add(self.step[u] < self.step[v]).only_enforce_if(first)
            self.model.add(self.step[v] < self.step[u]).only_enforce_if(~first)
            self.runs_first[self.part[u], self.part[v]] = first
            self.runs_first[self.part[v], self.part[u]] = ~first

    def _resident_sets(self, maybe: Relation) -> None:
        """live[e, v] where nothing fixes it, from (1) and (2); the resident set of each step is within the peak."""
        problem, known = self.problem, self.known
        for row, op in enumerate(self.part):
            storages = np.nonzero(maybe[row])[0].tolist()
            for storage in storages:
                self.look()
                self.live[storage, op] = self._live(storage, op)
            terms = [int(problem.sizes[s]) * self.live[s, op] for s in storages]
            self.model.add(sum(terms) + int(known.bytes[op]) <= self.peak)

    def _live(self, storage: int, op: int) -> Any:
        """A literal true whenever a start has run by step `op` and an end has not run before it."""
        starts = [] if self.known.started[op, storage] else self._neighbours(self.problem.starts[:, storage], op, True)
        ends = [] if self.known.needed[op, storage] else self._neighbours(self.problem.ends[:, storage], op, False)
        if len(starts) + len(ends) == 1:
            return (starts or ends)[0]
        live = self.model.new_bool_var("")
        for start in starts or [True]:
            for end in ends or [True]:
                self.model.add_bool_or(live, *(~x for x in (start, end) if x is not True))
        return live

    def _neighbours(self, column: Any, op: int, earlier: bool) -> list[Any]:
        """For each op of the column that may run before (after) `op`: the literal that it does."""
        pairs = (((other, op) if earlier else (op, other)) for other in np.nonzero(column)[0].tolist())
        return [self.runs_first[pair] for pair in pairs if pair in self.runs_first]

    def solve(self, limit: Limit, hint: Sequence[int]) -> Found:
        """An order of at most `high` units with the lowest peak, started from the problem's order `hint`."""
        from ortools.sat.python import cp_model

        place = {op: at for at, op in enumerate(hint)}
        at = [place[self.problem.ops[op]] for op in self.part]
        for row, step in enumerate(sorted(range(len(at)), key=lambda row: at[row])):
            self.model.add_hint(self.step[step], row)
        self.solver, status = limit.solve(self.model, "order", self.problem.unit)
        if status == cp_model.INFEASIBLE:
            return Found(None, self.high + 1)
        bound = max(0, round(self.solver.best_objective_bound))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Found(None, bound)
        steps = [self.solver.value(step) for step in self.step]
        return Found([self.part[row] for row in sorted(range(len(steps)), key=lambda row: steps[row])], bound)


class JointProgram(OrderProgram):
    """Adds addresses: equations (6) to (8)."""

    def __init__(
        self, problem: Reduced, before: Relation, part: Sequence[int], low: int, high: int, look: Look = never
    ) -> None:
        super().__init__(problem, before, part, low, high, look)
        self.address: dict[int, Any] = {}
        if self.literals > MOST_LITERALS:
            return
        # Storages that no op left touches or that are empty need no address.
        placed = [s for s in np.nonzero(problem.starts.any(axis=0))[0].tolist() if problem.sizes[s]]
        for e in placed:
            size = int(problem.sizes[e])
            self.address[e] = self.model.new_int_var(0, high - size, f"A{e}")
            self.model.add(self.address[e] + size <= self.peak)  # (8)
        for number, i in enumerate(placed):
            for j in placed[:number]:
                look()
                self._apart(i, j)

    def _apart(self, i: int, j: int) -> None:
        """(6), (7a) and (7b): one below the other if they are live together at the start of one of them."""
        model, sizes = self.model, self.problem.sizes
        steps = np.nonzero(self.problem.starts[:, [i, j]].any(axis=1))[0].tolist()
        together = [literals for op in steps if (literals := self._both(i, j, op)) is not None]
        if not together:  # A.2: they never meet.
            return
        below, above = model.new_bool_var(f"a{i},{j}"), model.new_bool_var(f"b{i},{j}")
        for literals in together:
            model.add_bool_or(below, above, *(~x for x in literals))  # (6)
        model.add(self.address[i] + int(sizes[i]) <= self.address[j]).only_enforce_if(below)  # (7a)
        model.add(self.address[j] + int(sizes[j]) <= self.address[i]).only_enforce_if(above)  # (7b)

    def _both(self, i: int, j: int, op: int) -> list[Any] | None:
        """Literals that are all true if both are live at step `op`; None if they cannot be."""
        literals = []
        for storage in (i, j):
            if (storage, op) in self.live:
                literals.append(self.live[storage, op])
            elif not (self.known.started[op, storage] and self.known.needed[op, storage]):
                return None
        return literals

    def offset(self, storage: int) -> int:
        """Units from the arena's start in the solution found."""
        return int(self.solver.value(self.address[storage])) if storage in self.address else 0


def _maybe_live(problem: Reduced, before: Relation, known: Live, look: Look) -> Relation:
    """[op, storage]: neither surely live nor surely not."""
    not_before = (~before).astype(np.float32)
    may_start = product(not_before, problem.starts.astype(np.float32), look) > 0
    may_need = known.needed | (product(not_before.T, problem.ends.astype(np.float32), look) > 0)
    maybe: Relation = may_start & may_need & ~(known.started & known.needed) & (problem.sizes > 0)
    return maybe
