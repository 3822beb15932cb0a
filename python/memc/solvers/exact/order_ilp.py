# SPDX-License-Identifier: Apache-2.0
"""Operator order, and order with addresses, as the integer program of MODeL (Steiner et al. 2023), through CP-SAT.

The programs are in `order_programs`. Here the heuristics come first, then what precedence decides with their peak as the
bound, and programs for what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..buffers import Buffer
from ..order_problem import OrderProblem, OrderSolution, order_peak, solve_order_native
from ..placement_problem import Problem, Solution, check, solve_native
from .cp_sat import Limit
from .order_precedence import (
    Expired,
    Look,
    Reduced,
    Relation,
    decide_pairs,
    least_undecided,
    reduce_problem,
    surely_live,
)
from .order_programs import MOST_LITERALS, Found, JointProgram, OrderProgram

MOST_OPS = 4000
"""Ops beyond which the heuristics' order is returned as it is: the relations below are dense."""
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
