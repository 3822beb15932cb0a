# SPDX-License-Identifier: Apache-2.0
"""The integer program of recomputation by stages, through CP-SAT: a relaxation that is tightened where it must be.

As in Checkmate (Jain et al. 2020, section 4), binaries say what is recomputed in each stage and what is kept from stage to
stage; the first runs keep the given order. Unlike there, nothing is stated about the order of recomputations in one
stage, nor that an op is recomputed once: what is stated holds in every sequence, so the optimum is a bound for every sequence.
Their memory rows for each op of each stage, of which few matter, come as cuts where an answer breaks them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import permutations, product
from math import gcd
from typing import Any, Union

from ..recompute import RecomputeProblem
from .cp_sat import Limit
from .recompute_stages import Links, Stages

MOST_ORDERED = 40
"""Ops that are recomputed in one stage beyond which nothing is stated of their order."""

Literal = Any
"""A CP-SAT literal."""
Term = Union[bool, Literal]


class RecomputeProgram:
    """The least added cost below `most` (if not None) of sequences within `limit` bytes."""

    def __init__(self, problem: RecomputeProblem, limit: int, most: int | None) -> None:
        from ortools.sat.python import cp_model

        self.problem, self.limit, self.most = problem, limit, most
        self.links = Links.of(problem)
        self.unit = gcd(*problem.sizes, *problem.scratch) or 1
        self.model = cp_model.CpModel()
        self.again: dict[tuple[int, int], Literal] = {}
        """Whether an op is recomputed in a stage."""
        self.kept: dict[tuple[int, int], Term] = {}
        """Whether a value is live when a stage begins, and read in it or later."""
        self.twice: dict[tuple[int, int], Literal] = {}
        """Whether an op is recomputed in a stage more than once. Missing until it is needed."""
        self.before: dict[tuple[int, int, int], Literal] = {}
        """The order of two ops, the lower number first, in a stage: see `_before`."""
        self.transitive: set[tuple[int, int, int, int]] = set()
        """Triples of ops, and the stage, of which it is stated that their order has no circles."""
        self.known: set[Hashable] = set()
        """What there are cuts for."""
        self.cost: list[Any] = []
        self._variables()
        self._availability()
        kept_in: list[list[int]] = [[] for _ in range(len(problem.costs) + 1)]
        for value, stage in self.kept:
            kept_in[stage].append(value)
        for op in range(len(problem.costs)):
            self._first_run(op, kept_in[op + 1])

    # --- What holds in every sequence.

    def _variables(self) -> None:
        problem, until = self.problem, self._last_stages()
        for op, last in enumerate(until):
            for stage in range(op + 1, last + 1):
                self.again[op, stage] = run = self.model.new_bool_var("")
                self.cost.append(problem.costs[op] * run)
        for op, values in enumerate(problem.makes):
            for value in values:
                if problem.sizes[value] == 0:
                    continue
                readers = self.links.readers[value]
                first = max(readers, default=op)
                for stage in range(op + 1, max([op, *readers, *(until[r] for r in readers)]) + 1):
                    surely = until[op] <= op and stage <= first
                    self.kept[value, stage] = True if surely else self.model.new_bool_var("")

    def _last_stages(self) -> list[int]:
        """For each op, the last stage in which it may be recomputed for a reader of its results; -1 if it may not be."""
        problem = self.problem
        last = [-1] * len(problem.costs)
        for op in reversed(range(len(last))):
            if problem.once[op] or (self.most is not None and problem.costs[op] > self.most):
                continue
            readers = (r for v in problem.makes[op] if problem.sizes[v] for r in self.links.readers[v])
            last[op] = min([max((max(r, last[r]) for r in readers), default=-1), *problem.until[op]])
        return last

    def _availability(self) -> None:
        """State that an op finds what it reads: kept from an earlier stage, or recomputed in this one."""
        for (value, stage), kept in self.kept.items():
            maker = self.links.maker[value]
            if kept is not True and stage > maker + 1:
                self._any(~kept, self.kept[value, stage - 1], self.again.get((maker, stage - 1), False))
        for stage, values in enumerate(self.problem.reads):
            for value in values:
                self._available(value, stage, True)
        for (op, stage), run in self.again.items():
            for value in self.problem.reads[op]:
                self._available(value, stage, run)

    def _available(self, value: int, stage: int, if_so: Term) -> None:
        if self.problem.sizes[value]:
            made = self.again.get((self.links.maker[value], stage), False)
            self._any(self._no(if_so), self.kept[value, stage], made)

    def _first_run(self, op: int, across: Sequence[int]) -> None:
        """The bytes live during the first run of an op keep the limit. `across`: values that may be live after it."""
        own = set(self.problem.reads[op]).union(self.problem.makes[op])
        others = [(v, self._kept(v, op + 1)) for v in across if v not in own]
        taken = [(v, self._no(self._kept(v, op + 1))) for v in self.problem.over[op]]
        parts = [(v, self._no(self._kept(v, op + 1))) for v in self.problem.parts[op]]
        self._within(op, True, others, taken, parts)

    def _within(
        self,
        op: int,
        if_so: Term,
        others: Sequence[tuple[int, Term]],
        taken: Sequence[tuple[int, Term]],
        parts: Sequence[tuple[int, Term]],
    ) -> None:
        """While `op` runs, what it touches and `others`, each where its term is true, are within the limit, less all of
        `parts` whose terms are true and one such of `taken`: the largest, which is no less than the one that is.
        """
        problem, unit = self.problem, self.unit
        fixed = problem.scratch[op] + sum(problem.sizes[v] for v in {*problem.reads[op], *problem.makes[op]})
        fixed += sum(problem.sizes[v] for v, term in others if term is True)
        fixed -= sum(problem.sizes[v] for v, term in parts if term is True)
        terms = [(problem.sizes[v], term) for v, term in others if not isinstance(term, bool)]
        free = [(problem.sizes[v], term) for v, term in taken if term is not False and problem.sizes[v]]
        most = max((size for size, _ in free), default=0)
        if fixed + sum(size for size, _ in terms) <= self.limit:
            return
        joined = [(problem.sizes[v], term) for v, term in parts if not isinstance(term, bool)]
        saved: list[tuple[int, Literal]] = []
        if any(term is True and size == most for size, term in free):
            fixed -= most
        else:
            for size, term in free:
                takes = self.model.new_bool_var("")
                self._any(~takes, term)
                saved.append((size, takes))
            if len(saved) > 1:
                self.model.add_at_most_one(takes for _, takes in saved)
        left = sum(size // unit * term for size, term in terms)
        left -= sum(size // unit * takes for size, takes in (*saved, *joined))
        if not terms and not saved and not joined:
            self._any(self._no(if_so))
            return
        row = self.model.add(left <= (self.limit - fixed) // unit)
        if if_so is not True:
            row.only_enforce_if(if_so)

    # --- Cuts.

    def cut(self, stages: Stages, stage: int) -> bool:
        """State which bytes are live while each op runs that `stages` recomputes in a stage, whatever their order. Returns
        whether that is new.

        Of an op's recomputations in a stage the first one counts; these have an order.
        """
        runs = stages.again[stage]
        key = (stage, runs, stages.kept[stage], stages.kept[stage + 1])
        if key in self.known or len(runs) > MOST_ORDERED:
            return False
        self.known.add(key)
        for op in sorted(runs):
            for value in self.problem.makes[op]:
                for reader in runs.intersection(self.links.readers[value]) if self.problem.sizes[value] else ():
                    # A value that was not kept is made before it is read.
                    ran = self._no(self.again[op, stage]), self._no(self.again[reader, stage])
                    self._any(*ran, self._kept(value, stage), self._before(op, reader, stage))
        for a, b, c in permutations(sorted(runs), 3):
            if (a, b, c, stage) not in self.transitive:
                self.transitive.add((a, b, c, stage))
                between = self._before(a, b, stage), self._before(b, c, stage)
                self._any(*map(self._no, between), self._before(a, c, stage))
        for op in sorted(runs):
            self._run_again(op, runs, stage)
        return True

    def _run_again(self, op: int, runs: frozenset[int], stage: int) -> None:
        """State that the bytes live during the first recomputation of `op` in a stage, as far as `runs` say, keep the limit."""
        made = {v for r in runs for v in self.problem.makes[r] if self.problem.sizes[v]}
        values = sorted(made.union(v for v, at in self.kept if at == stage).difference(self.problem.makes[op]))
        live = {value: self._live_after(value, op, runs, stage) for value in values}
        others = [(v, term) for v, term in live.items() if v not in self.problem.reads[op]]
        taken = [(v, self._no(live.get(v, False))) for v in self.problem.over[op]]
        parts = [(v, self._no(live.get(v, False))) for v in self.problem.parts[op]]
        self._within(op, self.again[op, stage], others, taken, parts)

    def _live_after(self, value: int, op: int, runs: frozenset[int], stage: int) -> Term:
        """A literal that is true where the value is live both when `op` is recomputed and after that."""
        maker = self.links.maker[value]
        again = self.again.get((maker, stage), False)
        there = [[self._kept(value, stage), self._no(again)]]
        if maker in runs:
            # If it runs once in the stage, what it made before is what is read later.
            there.append([again, self._before(maker, op, stage), self._no(self._twice(maker, stage))])
        later = [[self._needed(value, stage)]]
        for reader in runs.intersection(self.links.readers[value]) - {op}:
            later.append([self.again[reader, stage], self._before(op, reader, stage)])
        ways = [[*a, *b] for a, b in product(there, later)]
        ways = [way for way in ways if not any(term is False for term in way)]
        if any(all(term is True for term in way) for way in ways):
            return True
        if not ways:
            return False
        live = self.model.new_bool_var("")
        for way in ways:
            self._any(live, *map(self._no, way))
        return live

    def _before(self, a: int, b: int, stage: int) -> Literal:
        """Whether the first recomputation of op `a` in the stage comes before that of op `b`."""
        low, high = min(a, b), max(a, b)
        if (low, high, stage) not in self.before:
            self.before[low, high, stage] = self.model.new_bool_var("")
        first = self.before[low, high, stage]
        return first if a == low else ~first

    def _needed(self, value: int, stage: int) -> Term:
        """Whether the value is read by the first run of the stage, or live after it."""
        return True if stage in self.links.readers[value] else self._kept(value, stage + 1)

    def _twice(self, op: int, stage: int) -> Literal:
        if (op, stage) not in self.twice:
            self.twice[op, stage] = more = self.model.new_bool_var("")
            self.model.add_implication(more, self.again[op, stage])
            self.cost.append(self.problem.costs[op] * more)
        return self.twice[op, stage]

    # --- Literals that may be constants.

    def _kept(self, value: int, stage: int) -> Term:
        return self.kept.get((value, stage), False)

    @staticmethod
    def _no(term: Term) -> Term:
        return not term if isinstance(term, bool) else ~term

    def _any(self, *terms: Term) -> None:
        if not any(term is True for term in terms):
            self.model.add_bool_or([term for term in terms if term is not False])

    # --- Solving.

    def solve(self, limit: Limit, hint: Stages | None) -> tuple[Stages | None, int | None]:
        """What the solver chose, if it chose anything, and the least that it shows possible, None if it shows that there
        is nothing."""
        from ortools.sat.python import cp_model

        added = sum(self.cost)
        self.model.minimize(added)
        self.model.clear_hints()
        if hint is not None:
            for (op, stage), run in self.again.items():
                self.model.add_hint(run, op in hint.again[stage])
            for (value, stage), kept in self.kept.items():
                if kept is not True:
                    self.model.add_hint(kept, value in hint.kept[stage])
        if self.most is not None:
            self.model.add(added <= self.most)
        # Bounds come from the linear relaxation: Checkmate's rows are tight, propagation alone shows nothing.
        solver, status = limit.solve(
            self.model, "recomputation", linearization_level=2, optimize_with_lb_tree_search=True
        )
        if status == cp_model.INFEASIBLE:
            return None, None
        bound = max(0, round(solver.best_objective_bound))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, bound
        ops = len(self.problem.costs)
        again: list[set[int]] = [set() for _ in range(ops)]
        kept_in: list[set[int]] = [set() for _ in range(ops + 1)]
        for (op, stage), run in self.again.items():
            if solver.value(run):
                again[stage].add(op)
        for (value, stage), kept in self.kept.items():
            if kept is True or solver.value(kept):
                kept_in[stage].add(value)
        return Stages([frozenset(a) for a in again], [frozenset(k) for k in kept_in]), bound
