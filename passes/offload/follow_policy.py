# SPDX-License-Identifier: Apache-2.0
"""Published policies of copies to the host, instead of the search: what a function becomes if it follows one.

They keep the order of the ops that they are given, which exporters of models write depth first, and see layers (`layers.py`). Within
a budget they behave as in a pool of that size: those that can wait for room do. The addresses are memc's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memc.ir.core import Function
from memc.ir.cost_model import CostModel
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot
from memc.ir.spaces import ARENA
from memc.passes.budget import Budget, over_budget
from memc.passes.offload.layers import layered
from memc.passes.order.reorder import Search, reorder
from memc.passes.recompute.choices import Choice, Choices, Copies, Recomputation
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.problem import RecomputeGraph
from memc.passes.recompute.rematerialize import SPARE, bytes_taken
from memc.solvers.offload import OffloadProblem, Schedule
from memc.solvers.offload_policies.choose import PolicyName, schedules
from memc.solvers.recompute import recompute_ladder


@dataclass(frozen=True)
class Followed:
    """What a policy is to keep."""

    policy: PolicyName
    budget: Budget
    total: bool
    """Whether the budget is for weights, states, inputs and outputs too."""
    copies: Copies
    search: Search
    """For the order without copies, of whose arena a budget is a share."""


def follow_policy(module: Module, function: Function, how: Followed, costs: CostModel, alignment: int) -> Recomputation:
    """Have a function, which must not have placements or aliases, copy and recompute as a policy says.

    Raises BudgetError, leaving the function as it was, if the arena that comes of it is above the budget: a policy that takes none
    into account may be.
    """
    given = list(function.ops)
    reorder(function, how.search, alignment)
    arena = planned_arena(function, alignment)
    function.ops = given
    taken = bytes_taken(module, function, alignment, how.total).with_bytes(ARENA, arena)
    whole = how.budget.of(taken.peak)
    most = whole - (taken.peak - arena)
    graph = RecomputeGraph.of(function, costs.cost, alignment)
    problem = OffloadProblem(graph.problem, graph.movable(how.copies.least), how.copies.lanes)
    before = Snapshot.of(module, function)
    layers = layered(graph, problem)
    least: int | None = None
    for limit in (most, int(SPARE * most)):
        for plan in schedules(layers, how.policy, limit):
            if how.copies.host_budget is not None and plan.copied_peak > how.copies.host_budget:
                continue
            choice = Choice(graph, tuple(given), plan)
            tried = Choices(function, alignment, (choice,))
            found = tried.follow(choice, arena)
            if found.arena <= most and tried.keeps_host(how.copies.host_budget):
                alone = (Schedule.of_runs(problem.ops, other) for other in recompute_ladder(problem.ops, most))
                beside = Choices(function, alignment, (choice, *(Choice(graph, choice.ops, other) for other in alone)))
                return replace(found, copied=beside.copied(choice, most, how.copies))
            least = found.arena if least is None else min(least, found.arena)
            before.restore()
    error = over_budget(whole, taken.with_bytes(ARENA, arena if least is None else least), how.copies.host_budget)
    raise type(error)(f"offload policy {how.policy}: {error}")
