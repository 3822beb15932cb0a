# SPDX-License-Identifier: Apache-2.0
"""The least added cost at which a problem of recomputation keeps a limit, with proof: what the search is held against."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memc.ir.errors import UsageError

from ..recompute import RecomputePlan, RecomputeProblem, measure_sequence, recompute_ladder
from .cp_sat import Limit
from .recompute_program import RecomputeProgram
from .recompute_stages import StageOrder, Stages

MOST_OPS = 400
"""Ops of a problem at most: the program has up to one binary for each pair of ops, and for each value and op."""
WORK = 40.0
"""Units of CP-SAT's deterministic clock without a time limit; a unit is a few seconds of one core here."""


@dataclass(frozen=True)
class RecomputeOptimum:
    """The cheapest plan within a limit, as far as it was found and proven."""

    plan: RecomputePlan | None
    """None if none was found."""
    lower_bound: int | None
    """No sequence within the limit whose first runs keep the given order has less added cost, however often and in whichever
    order ops are recomputed between them; None if it is shown that there is no such sequence."""

    @property
    def proven_optimal(self) -> bool:
        return self.plan is not None and self.plan.added_cost == self.lower_bound

    @property
    def proven_impossible(self) -> bool:
        return self.lower_bound is None


def solve_recompute(
    problem: RecomputeProblem, limit: int, time_limit: float | None = None, work: float = WORK
) -> RecomputeOptimum:
    """The plan of least added cost of at most `limit` bytes, or the best one found and a lower bound.

    First runs keep the given order. Never costlier than what `recompute_ladder` has for that. Without a `time_limit` (seconds)
    one worker does a fixed amount of work, so that the result depends on the problem only. Raises UsageError for more than
    `MOST_OPS` ops and ValueError for a malformed problem.
    """
    require_few(len(problem.costs))
    problem = replace(problem, in_order=True)
    fitting = [plan for plan in recompute_ladder(problem, limit) if plan.peak <= limit]
    best = min(fitting, key=lambda plan: plan.added_cost, default=None)
    if best is not None and best.added_cost == 0:
        return RecomputeOptimum(best, 0)
    left = Limit(time_limit, threads=1, work=work)
    program = RecomputeProgram(problem, limit, None if best is None else best.added_cost - 1)
    hint = None if best is None else Stages.of_sequence(problem, best.sequence)
    bound = 0
    while not left.is_over():
        chosen, least = program.solve(left, hint)
        if least is None:
            return RecomputeOptimum(best, None if best is None else best.added_cost)
        bound = max(bound, least)
        if chosen is None:
            break
        hint = chosen = chosen.cleaned(problem)
        sequence, stuck = arranged(problem, limit, chosen)
        plan = measure_sequence(problem, sequence)
        if plan.peak <= limit and (best is None or plan.added_cost < best.added_cost):
            best = plan
            if best.added_cost <= bound:
                break
        if not any([program.cut(chosen, stage) for stage in stuck]):
            break
    return RecomputeOptimum(best, bound if best is None else min(bound, best.added_cost))


def require_few(ops: int) -> None:
    """Raise UsageError if a problem has too many ops to be solved here."""
    if ops > MOST_OPS:
        raise UsageError(
            f"rematerialize: solver=exact takes functions of at most {MOST_OPS} ops besides constants and views, "
            f"got {ops}; use solver=search"
        )


def arranged(problem: RecomputeProblem, limit: int, stages: Stages) -> tuple[list[int], list[int]]:
    """A sequence, and the stages in which no order within the limit was found: what is recomputed there goes by number."""
    sequence: list[int] = []
    stuck: list[int] = []
    for op, again in enumerate(stages.again):
        order = StageOrder(problem, limit, op, stages.kept[op], stages.kept[op + 1]).find(again)
        if order is None:
            stuck.append(op)
        sequence += sorted(again) if order is None else order
        sequence.append(op)
    return sequence, stuck
