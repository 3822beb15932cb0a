# SPDX-License-Identifier: Apache-2.0
"""A lower bound on the time that copies and recomputation together add, as a linear program.

It bounds schedules whose ops run for the first time in a given sequence, within a budget, however often they run and whatever they copy.
With `r` the part of each absence that is recomputed, `o` the bytes that lie on the host at an op p, `e` the time added in all and `x`
what of it comes before p:

    sum of sizes * r over absences around p + o >= live - budget        o <= bytes that may be copied, not recomputed
    o / speed out <= time of the ops before p + x                       o / speed in <= time of the ops after p + e - x
    sum of costs * r <= e                                               x rises with p

Every such schedule has numbers that keep these rows, so that the least `e` of any numbers is not above its own:

- At the first run of p no more than the budget is in the arena, so that of what is live there at least `live - budget` is absent. Each absent
  value is between two of its uses in first runs, which is an absence around p, and is back before the second.
- What brings it back first after p is a run of its maker, or a copy in. If it is a run, at any p within the absence, `r` is 1, else 0. That
  run is not the first of its op, and absences of one value lie apart in time, so each counts its own; results of one op share its cost.
- What a copy in brings back, counted in `o`, is not in the arena from p to there. So its copy out was over before p, at full speed at best,
  and its copy in comes after p. Before p there are the first runs before it and `x`, and after it the others and `e - x`.

Rows of some ops alone, and fractions, only lower the bound. Latency, addresses, what copies take ops, and that recomputation needs operands do
not count. Rows for lanes between two ops, with `o` split by absence, and the cost of operands that nothing else reads were tried: on
steps of five models they raise it by nothing that shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ..offload import Lane, OffloadProblem, live_bytes

MOST_ROWS = 100
"""Ops whose live bytes count; leaving others out keeps it a bound."""
MIB = 1 << 20
MS = 10**9
"""Picoseconds."""
TOLERANCE = 1e-6
"""Of the solver, relative to what it minimizes."""


@dataclass(frozen=True)
class Absence:
    """A value between two uses."""

    value: int
    last: int
    """The position of the use before it."""
    next: int


def added_at_least(problem: OffloadProblem, budget: int, order: Sequence[int] | None = None) -> int | None:
    """Picoseconds that every schedule takes beyond one run of each op which runs the ops for the first time in `order`, by default
    that of their numbers, within `budget` bytes. None if it is shown that there is no such schedule."""
    problem = problem if order is None else _in_order(problem, order)
    live = live_bytes(problem.ops)
    rows = _rows(live, budget)
    if not rows:
        return 0
    return _solve(problem, rows, [live[p] - budget for p in rows], _absences(problem))


def moments(problem: OffloadProblem, budget: int, order: Sequence[int] | None = None) -> tuple[int, int]:
    """At how many ops the bound above looks, and how many there are at which more than `budget` bytes are live."""
    live = live_bytes(problem.ops if order is None else _in_order(problem, order).ops)
    return len(_rows(live, budget)), sum(nbytes > budget for nbytes in live)


def _in_order(problem: OffloadProblem, order: Sequence[int]) -> OffloadProblem:
    """With the ops numbered by their places in `order`."""
    ops = problem.ops
    number = {op: at for at, op in enumerate(order)}
    return replace(
        problem,
        ops=replace(
            ops,
            costs=[ops.costs[op] for op in order],
            once=[ops.once[op] for op in order],
            scratch=[ops.scratch[op] for op in order],
            reads=[ops.reads[op] for op in order],
            makes=[ops.makes[op] for op in order],
            over=[ops.over[op] for op in order],
            parts=[ops.parts[op] for op in order],
            until=[[number[other] for other in ops.until[op]] for op in order],
        ),
    )


def _rows(live: Sequence[int], budget: int) -> list[int]:
    """The ops above the budget, those first that are above their neighbours, evenly chosen if there are too many."""
    over = [p for p, nbytes in enumerate(live) if nbytes > budget]
    if len(over) > MOST_ROWS:
        highest = [p for p in over if live[p] >= max(live[max(0, p - 1)], live[min(len(live) - 1, p + 1)])]
        over = highest if len(highest) <= MOST_ROWS else highest[:: -(-len(highest) // MOST_ROWS)]
        over = sorted({*over, max(range(len(live)), key=lambda p: live[p])})
    return over


def _absences(problem: OffloadProblem) -> list[Absence]:
    """Of all values, those between uses that are not next to each other."""
    ops = problem.ops
    used: dict[int, int] = {}
    found = []
    for at, (reads, makes) in enumerate(zip(ops.reads, ops.makes)):
        for value in reads:
            if at - used[value] > 1 and ops.sizes[value]:
                found.append(Absence(value, used[value], at))
            used[value] = at
        used.update(dict.fromkeys(makes, at))
    return found


def _solve(
    problem: OffloadProblem, rows: Sequence[int], excess: Sequence[int], absences: Sequence[Absence]
) -> int | None:
    from ortools.math_opt.python import mathopt  # Takes longer to load than most plans to make.

    ops = problem.ops
    model = mathopt.Model()
    added = model.add_variable(lb=0, name="added")
    maker = {value: op for op, values in enumerate(ops.makes) for value in values}
    around = [[a for a in absences if a.last < p < a.next] for p in rows]
    part = {
        absence: model.add_variable(lb=0, ub=0 if ops.once[maker[absence.value]] else 1)
        for absence in dict.fromkeys(a for each in around for a in each)
    }
    """Of each absence, how much of the value is recomputed."""
    costs = {a: ops.costs[maker[a.value]] / len(ops.makes[maker[a.value]]) / MS for a in part}
    model.add_linear_constraint(mathopt.fast_sum(costs[a] * part[a] for a in part) <= added)
    before = [0, *accumulate(ops.costs)]
    earlier = None
    for p, over, absent in zip(rows, excess, around):
        gone, sooner = model.add_variable(lb=0), model.add_variable(lb=0)
        again = {a: ops.sizes[a.value] / MIB * part[a] for a in absent}
        movable = [a for a in absent if problem.movable[a.value]]
        model.add_linear_constraint(mathopt.fast_sum(again.values()) + gone >= over / MIB)
        may_leave = sum(ops.sizes[a.value] for a in movable) / MIB
        model.add_linear_constraint(mathopt.fast_sum(again[a] for a in movable) + gone <= may_leave)
        model.add_linear_constraint(_per_mib(problem.lanes.out) * gone <= before[p] / MS + sooner)
        later = (before[-1] - before[p + 1]) / MS + added - sooner
        model.add_linear_constraint(_per_mib(problem.lanes.back) * gone <= later)
        model.add_linear_constraint(sooner <= added)
        if earlier is not None:
            model.add_linear_constraint(earlier <= sooner)
        earlier = sooner
    model.minimize(added)
    result = mathopt.solve(model, mathopt.SolverType.HIGHS)
    reason = result.termination.reason
    if reason == mathopt.TerminationReason.OPTIMAL:
        return max(0, int(result.objective_value() * MS * (1 - TOLERANCE)) - 1)
    return None if reason == mathopt.TerminationReason.INFEASIBLE else 0


def _per_mib(lane: Lane) -> float:
    """Milliseconds at full speed."""
    return lane.per_mib / MS
