# SPDX-License-Identifier: Apache-2.0
"""reorder: the ops of a function in the sequence that keeps the fewest bytes live at one time.

Which results may lie in operands' bytes depends on the order, and which order is best depends on what lies where. So
every order is judged by the peak that it has once aliases are planned for it (`alias_plan.py`), and orders are sought
for several guesses at the aliases, again and again around the best one found.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, ClassVar, Optional

from memc.ir.checked_options import Alignment, Amount, OneOf, Range, Share
from memc.ir.copies import has_copies
from memc.ir.core import Function
from memc.ir.durations import Seconds
from memc.ir.liveness import ALIGNMENT, peak
from memc.ir.module import Module
from memc.passes.base import Pass, alignment_of
from memc.passes.order.bound import order_bound
from memc.passes.order.overwrites import Guess, with_overwrites
from memc.passes.order.problem import arranged, order_problem
from memc.passes.placement.alias_plan import AliasPlan, plan_aliases
from memc.passes.placement.in_place import applied
from memc.passes.placement.op_aliasing_cache import KnownAliasing
from memc.solvers.order import MAX_BYTES, WORK, OrderProblem, OrderSolution, order_solver_names, solve_order

MAX_ROUNDS = 4
GUESSES = 3
"""Problems in each round."""
LARGE = 1_000
"""Ops of a function for which a round costs a noticeable time."""


@dataclass(frozen=True)
class Search:
    """How to look for orders."""

    solver: str = "auto"
    time_limit: float | None = None
    """Seconds for one function in all; None bounds the work by count."""
    beam_width: int = 64
    slack: float = 0.0
    """Nothing is sought that would lower the peak by less than this fraction of it."""
    work: int = WORK
    """Steps of one function's searches in all, without a time limit."""


def reorder(function: Function, search: Search, alignment: int = ALIGNMENT) -> None:
    """Put the ops of `function` into an order of lower peak, if one is found; else leave everything as it is.

    Aliases that the function has are kept, and bind the order. Addresses hold for one order only, so they are dropped
    when it changes. A function with copies between spaces keeps its order, which says what runs beside them.
    """
    if has_copies(function):
        return
    before = list(function.ops)
    if any(value.alias is not None for value in function.values()):
        _reorder_aliased(function, search, alignment)
    else:
        _reorder_plain(function, search, alignment)
    if function.ops != before:
        for value in function.values():
            value.placement = None


def _reorder_aliased(function: Function, search: Search, alignment: int) -> None:
    """One problem says it all."""
    problem = order_problem(function, alignment)
    before, reached = list(function.ops), peak(function, alignment)
    function.ops = arranged(before, _solve(problem, search, search.time_limit, search.work).order)
    if peak(function, alignment) >= reached:
        function.ops = before


def _reorder_plain(function: Function, search: Search, alignment: int) -> None:
    """Rounds of orders for the best plan so far, until none is better."""
    deadline = None if search.time_limit is None else time.monotonic() + search.time_limit
    work = search.work
    bound = order_bound(function, alignment)
    rules: KnownAliasing = {}
    best_ops, best = list(function.ops), plan_aliases(function, alignment, rules=rules)
    tried = {tuple(best_ops)}
    exhausted = False
    for _ in range(MAX_ROUNDS):
        if best.peak <= bound:
            return
        base, reached = best_ops, best.peak
        guesses = [_planned(function, best, alignment)] if exhausted else _guesses(function, best, alignment)
        least = best.peak
        for number, guess in enumerate(guesses):
            if best.peak <= bound:
                break
            share = GUESSES - number
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) / share
            worth = best.peak - int(search.slack * best.peak)
            solution = _solve(guess.problem, search, left, work // share, bound, worth)
            work = max(0, work - solution.work)
            least = min(least, solution.lower_bound)
            ops = arranged(base, [guess.numbering[op] for op in solution.order])
            if tuple(ops) in tried:
                continue
            tried.add(tuple(ops))
            function.ops = ops
            attempt = plan_aliases(function, alignment, rules=rules)
            if attempt.peak < best.peak:
                best_ops, best = ops, attempt
        function.ops = list(best_ops)
        if best.peak >= reached - int(search.slack * reached):
            return
        # A bound holds for the aliases of its guess. Where no guess allows more than the slack, the aliases that the new order has
        # may still: of a large function, they alone are tried again.
        worth = best.peak - int(search.slack * best.peak)
        exhausted = search.slack > 0 and least >= worth and len(best_ops) >= LARGE


def _planned(function: Function, plan: AliasPlan, alignment: int) -> Guess:
    """The problem with the aliases of `plan`."""
    with applied(function, plan):
        problem = order_problem(function, alignment)
    return Guess(problem, list(range(len(problem.touches))))


def _guesses(function: Function, plan: AliasPlan, alignment: int) -> list[Guess]:
    """Problems whose orders may suit `function`: with the aliases of `plan`, with more overwrites that other orders
    allow, and without any alias. Equal ones come once."""
    with applied(function, plan):
        planned = order_problem(function, alignment)
        more = with_overwrites(function, planned)
    given = list(range(len(planned.touches)))
    found = [Guess(planned, given), more, Guess(order_problem(function, alignment), given)]
    return [guess for index, guess in enumerate(found) if guess not in found[:index]]


def _solve(
    problem: OrderProblem, search: Search, time_limit: float | None, work: int, target: int = 0, worth: int = MAX_BYTES
) -> OrderSolution:
    return solve_order(
        problem,
        search.solver,
        time_limit=time_limit,
        beam_width=search.beam_width,
        target=target,
        work=work,
        slack=search.slack,
        worth=worth,
    )


@dataclass(frozen=True)
class Reorder(Pass):
    """Operator order of lower peak. The given order is always a candidate."""

    name: ClassVar[str] = "reorder"
    orders: ClassVar[bool] = True
    solver: Annotated[str, OneOf(order_solver_names)] = "auto"
    time_limit: Seconds | None = None
    """Wall time for each function; `none` bounds the work by count, so that every run gives the same order."""
    beam_width: Annotated[int, Range(least=1, most=2**20)] = 64
    """Partial orders that a beam search keeps."""
    slack: Share = 0.0
    """Nothing is sought that would lower the peak by less than this fraction of it."""
    work: Amount = WORK
    """Steps of each function's searches in all, without a time limit; 100,000,000 take about a second."""
    alignment: Optional[Alignment] = None
    """Bytes; sizes are rounded up to it."""

    def apply(self, module: Module) -> None:
        search = Search(self.solver, self.time_limit, self.beam_width, self.slack, self.work)
        for function in module.functions:
            reorder(function, search, alignment_of(self.alignment, module))
