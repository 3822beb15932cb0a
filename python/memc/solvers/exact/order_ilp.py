# SPDX-License-Identifier: Apache-2.0
"""Operator order, and order with addresses, as the integer program of MODeL (Steiner et al. 2023), through CP-SAT.

Equation numbers are the paper's. MODeL numbers its steps, and C[e, s] and P[e, s] say whether storage e is created or
preserved at step s. One op runs at each step, so here a step is named by the op that runs in it: `runs_first[u, v]`
says that step u comes before step v, and `live[e, v]` = C[e, v] + P[e, v]. This has no symmetric renumberings, and an
ASAP/ALAP span (10), a maximum useful lifetime (11), a preservation range (12) or a precedence (A.2) fixes variables
instead of shortening their ranges: `decide_pairs` finds all four, and more with the best peak known as the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..buffers import Buffer
from ..order_problem import OrderProblem, OrderSolution, order_peak, solve_order_native
from ..placement_problem import Problem, Solution, check, solve_native
from .cp_sat import Limit
from .order_precedence import (
    Expired,
    Live,
    Look,
    Reduced,
    Relation,
    decide_pairs,
    least_undecided,
    never,
    product,
    reduce_problem,
    surely_live,
)

MOST_OPS = 4000
"""Ops beyond which the heuristics' order is returned as it is: the relations below are dense."""
MOST_LITERALS = 50_000
"""Undecided pairs of ops and of op and storage beyond which no program is built."""
LEAST_SECONDS = 0.5
"""Time left below which no program is built: loading CP-SAT takes longer."""


@dataclass(frozen=True)
class JointSolution:
    """An order of the ops, and addresses for the lifetimes it gives."""

    order: tuple[int, ...]
    """Op numbers in execution order."""
    offsets: tuple[int, ...]
    """Bytes from the arena's start, one for each storage; 0 for one that no op touches."""
    scratch_offsets: tuple[int, ...]
    """Bytes from the arena's start, one for each op; 0 for an op without scratch."""
    peak: int
    """Bytes: the greatest offset + rounded size."""
    lower_bound: int
    """Bytes: no order with any addresses has a lower peak."""

    @property
    def proven_optimal(self) -> bool:
        return self.peak == self.lower_bound


def solve_order_ilp(
    problem: OrderProblem, time_limit: float | None = None, beam_width: int = 64, target: int = 0
) -> OrderSolution:
    """The optimum, or the best order within the limit and a proven bound. Never above the heuristics.

    Of a `time_limit` (seconds) half at most goes to the heuristics; without one, one worker does a fixed amount of
    work. Raises ValueError for a malformed problem,
    or if the sizes sum to 2**53 or more units of their greatest common divisor.
    """
    limit = Limit(time_limit)
    large = len(problem.touches) > MOST_OPS
    for_warm = time_limit if large else _half(time_limit)
    warm = solve_order_native(problem, "auto", time_limit=for_warm, beam_width=beam_width, target=target)
    if warm.proven_optimal or warm.peak <= target or large:
        return warm
    try:
        reduced = reduce_problem(problem, _look(limit))
        low, before = _bound(reduced, -(-warm.lower_bound // reduced.unit), warm.peak // reduced.unit, limit)
    except Expired:
        return warm
    if before is None:
        return replace(warm, lower_bound=warm.peak)
    order: list[int] = []
    missing = False
    for part in independent_parts(before):
        if len(part) == 1:
            order += part
            continue
        found = _search(reduced, before, part, low, warm, limit)
        low = max(low, found.bound)
        missing = missing or found.order is None
        order += found.order or []
        if low * reduced.unit >= warm.peak:
            return replace(warm, lower_bound=warm.peak)
    if missing:
        return replace(warm, lower_bound=low * reduced.unit)
    whole = reduced.complete(order)
    return OrderSolution(tuple(whole), order_peak(problem, whole), low * reduced.unit)


def _search(
    reduced: Reduced, before: Relation, part: Sequence[int], low: int, warm: OrderSolution, limit: Limit
) -> Found:
    """The part's ops in an order below the peak of `warm`, as far as there is time."""
    if not _worthwhile(limit):
        return Found(None, low)
    try:
        program = OrderProgram(reduced, before, part, low, warm.peak // reduced.unit - 1, _look(limit))
    except Expired:
        return Found(None, low)
    return program.solve(limit, warm.order) if program.literals <= MOST_LITERALS else Found(None, low)


def _half(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 2


def _look(limit: Limit) -> Look:
    def look() -> None:
        if limit.left() == 0.0:
            raise Expired

    return look


def _worthwhile(limit: Limit) -> bool:
    left = limit.left()
    return left is None or left >= LEAST_SECONDS


def solve_joint(problem: OrderProblem, *, alignment: int = 1, time_limit: float | None = None) -> JointSolution:
    """Order and addresses in one program. Never above the order of `ilp` placed by `auto`.

    Sizes and scratch are rounded up to the alignment. When the addresses meet the bound of the order alone there is
    nothing to decide jointly, and that is the proof; otherwise MODeL's program (9) decides both. Limits and errors as
    for the order alone.
    """
    limit = Limit(time_limit)
    rounded = replace(
        problem,
        sizes=[-(-size // alignment) * alignment for size in problem.sizes],
        scratch=[-(-size // alignment) * alignment for size in problem.scratch],
    )
    ordered = solve_order_ilp(rounded, _half(time_limit))
    placed = solve_native(_placement(rounded, ordered.order, alignment), "auto", time_limit=_half(limit.left()))
    best = _joint(rounded, ordered.order, placed, ordered.lower_bound)
    if best.proven_optimal or len(problem.touches) > MOST_OPS:
        return best
    try:
        reduced = reduce_problem(rounded, _look(limit))
        low, before = _bound(reduced, best.lower_bound // reduced.unit, best.peak // reduced.unit, limit)
    except Expired:
        return best
    if before is None:
        return replace(best, lower_bound=best.peak)
    proven = replace(best, lower_bound=low * reduced.unit)
    if not _worthwhile(limit):
        return proven
    try:
        high = best.peak // reduced.unit - 1
        program = JointProgram(reduced, before, range(len(before)), low, high, _look(limit))
    except Expired:
        return proven
    if program.literals > MOST_LITERALS:
        return proven
    found = program.solve(limit, best.order)
    if found.order is None:
        return replace(best, lower_bound=min(best.peak, found.bound * reduced.unit))
    order = reduced.complete(found.order)
    offsets = [program.offset(storage) * reduced.unit for storage in range(len(reduced.sizes))]
    return _joint(rounded, order, _plan(rounded, order, offsets, alignment), found.bound * reduced.unit)


def _bound(reduced: Reduced, low: int, high: int, limit: Limit) -> tuple[int, Relation | None]:
    """The least units that precedence does not refute, and what it says of orders below `high`, if there are any.

    Raises Expired if time is up before the latter is known.
    """
    look = _look(limit)
    before = decide_pairs(reduced, high - 1, look=look)
    if before is None:
        return high, None
    surely = int(surely_live(reduced, reduced.before, look).bytes.max(initial=0))
    return least_undecided(reduced, max(low, surely), high, look), before


def independent_parts(before: Relation) -> list[list[int]]:
    """Ops in groups such that every op of one group runs before every op of the next, as small as can be."""
    after, earlier = before.sum(axis=1), before.sum(axis=0)
    parts: list[list[int]] = [[]]
    crossing = 0
    for place, op in enumerate(np.argsort(earlier, kind="stable").tolist(), 1):
        parts[-1].append(op)
        # Precedences from the ops so far to the rest: all from those so far, but those among them.
        crossing += int(after[op] - earlier[op])
        if crossing == place * (len(before) - place):
            parts.append([])
    return parts[:-1]


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
        self.solver, status = limit.solve(self.model)
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


def _placement(problem: OrderProblem, order: Sequence[int], alignment: int) -> Problem:
    """The buffers of an order: storages in turn, then scratch of ops in turn."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    place = {op: at for at, op in enumerate(order)}
    for at, op in enumerate(order):
        for storage in problem.touches[op]:
            first.setdefault(storage, at)
            last[storage] = at + 1
    for storage in problem.kept:
        last[storage] = len(order)
    sizes = [size if storage in first else 0 for storage, size in enumerate(problem.sizes)]
    buffers = [Buffer(size, first.get(s, 0), last[s] if s in first else 1) for s, size in enumerate(sizes)]
    buffers += [Buffer(size, place[op], place[op] + 1) for op, size in enumerate(problem.scratch)]
    return Problem(buffers, alignment)


def _plan(problem: OrderProblem, order: Sequence[int], offsets: Sequence[int], alignment: int) -> Solution:
    """The program's addresses as a plan of the whole order, checked."""
    scratch = iter(offsets[len(problem.sizes) :])
    whole = [*offsets[: len(problem.sizes)], *(next(scratch) if size else 0 for size in problem.scratch)]
    buffers = _placement(problem, order, alignment)
    plan = Solution(tuple(whole), max((o + b.size for o, b in zip(whole, buffers.buffers) if b.size), default=0))
    verdict = check(buffers, plan)
    assert verdict.ok, f"the joint program's plan is wrong: {verdict}"
    return plan


def _joint(problem: OrderProblem, order: Sequence[int], plan: Solution, bound: int) -> JointSolution:
    storages = len(problem.sizes)
    scratch = plan.offsets[storages:] or (0,) * len(order)
    return JointSolution(tuple(order), plan.offsets[:storages], scratch, plan.peak, bound)
