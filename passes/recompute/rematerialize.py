# SPDX-License-Identifier: Apache-2.0
"""rematerialize: results dropped and recomputed, so that the arena keeps a budget, at the least added time.

The native search (`memc/solvers/recompute.py`) works on values and the bytes that they take over from one another; what it
finds is written back as recomputed ops, and judged by the arena that it then takes, addresses included. The exact solver
(`memc/solvers/exact/recompute.py`) takes its place for small functions where a proof is worth the wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Optional

from memc.ir.checked_options import Alignment, Amount, Share
from memc.ir.core import Function, Op
from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.footprint import Footprint
from memc.ir.function_footprint import footprint_of
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.op_queries import assigned_state
from memc.ir.snapshot import Snapshot
from memc.ir.spaces import ARENA, IO, WEIGHTS
from memc.ir.target import Kind, Target
from memc.passes.base import Pass, alignment_of
from memc.passes.budget import Budget, over_budget
from memc.passes.measured_times import read_measured
from memc.passes.order.reorder import Search, reorder
from memc.passes.recompute.choices import Choices, Copies, Recomputation, Starts
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.problem import is_whole_view
from memc.solvers.exact.recompute import require_few

Solver = Literal["search", "exact"]

SPARE = 0.95
"""How far below the budget plans are sought, for those that take more than the search thinks."""

SPARE_WITH_COPIES = 0.86
"""The same for plans with copies, which fill the arena nearly all the time: their addresses take some percent more."""

DEFAULT_SEARCH = Search()


@dataclass
class Plans:
    """What is found for one budget of a function and serves for others, while the function is as it was."""

    given: list[Op]
    """Its ops in the order in which they were given, and in the one that `reorder` finds."""
    best: list[Op]
    arena: int
    """Bytes that the arena takes in that."""
    starts: Starts | None = None
    found: dict[int | None, tuple[int, Choices]] = field(default_factory=dict)
    """By the host budget: plans, and down to how many bytes."""

    @staticmethod
    def of(function: Function, search: Search, alignment: int) -> Plans:
        """Reorders the function."""
        given = list(function.ops)
        reorder(function, search, alignment)
        return Plans(given, list(function.ops), planned_arena(function, alignment))

    def orders(self, function: Function, costs: CostModel, alignment: int) -> Starts:
        """What recomputation starts from."""
        if self.starts is None:
            self.starts = Starts.of(function, [self.best, self.given], costs, alignment)
        return self.starts

    def choices(
        self, function: Function, costs: CostModel, alignment: int, lowest: int, copies: Copies | None
    ) -> Choices:
        """Plans down to about `lowest` bytes."""
        key = None if copies is None else copies.host_budget
        down_to, found = self.found.get(key, (lowest + 1, None))
        if found is None or down_to > lowest:
            found = self.orders(function, costs, alignment).choices(lowest, copies)
            self.found[key] = lowest, found
        return found


def rematerialize(
    module: Module,
    function: Function,
    budget: Budget,
    costs: CostModel,
    alignment: int = ALIGNMENT,
    total: bool = False,
    search: Search = DEFAULT_SEARCH,
    solver: Solver = "search",
    time_limit: float | None = None,
    copies: Copies | None = None,
    plans: Plans | None = None,
    moved: int = 0,
    room: int = 0,
) -> Recomputation:
    """Reorder `function`, which must not have placements yet, and run ops again until its arena keeps `budget`, with
    `total` until everything does: arena, weights, states, inputs and outputs. Aliases that it has are kept. With `copies`,
    values are also copied out of the arena and back, where that takes less time. `plans`: of the function, with the same search,
    costs and copies, for several budgets of it. `moved`: bytes of states that will not lie on the device after all, which the budget counts
    no more; `room`: bytes that the arena is to have left.

    Recomputation starts from the order that `reorder` finds and from the given one, which may be worse by itself and
    better for it, and moves ops. With the solver `search` a lower budget never gives a larger arena; `exact` also takes, of
    each order, the proven optimum if that is found within `time_limit` (seconds) or, without one, a fixed amount of work. Raises
    BudgetError, leaving the function as it was, if no plan that was found keeps the budget, and UsageError if it has too many
    ops for `exact`.
    """
    if solver == "exact":
        require_few(sum(op.name != "constant" and not is_whole_view(op) for op in function.ops))
    plans = Plans.of(function, search, alignment) if plans is None else plans
    function.ops, given, arena = list(plans.best), plans.given, plans.arena
    taken = bytes_taken(module, function, alignment, total).with_bytes(ARENA, arena)
    whole = budget.of(taken.peak)
    taken = taken.with_bytes(WEIGHTS, taken[WEIGHTS] - moved) if moved else taken
    most = whole - (taken.peak - arena) - room
    if arena <= most:
        return Recomputation(arena, arena, 0.0, 0)
    before = Snapshot.of(module, function)
    host_budget = None if copies is None else copies.host_budget
    spare = int((SPARE if copies is None else SPARE_WITH_COPIES) * most)
    for limit, lowest in ((most, spare), (spare, 0)):
        choices = plans.choices(function, costs, alignment, lowest, copies)
        if solver == "exact":
            choices = choices.solved(limit, time_limit)
        for choice in choices.fitting(most, host_budget):
            found = choices.follow(choice, arena, most)
            if found.arena <= most and choices.keeps_host(host_budget):
                return found if copies is None else replace(found, copied=choices.copied(choice, most, copies))
            before.restore()
        if choices.least().plan.peak > lowest:
            break  # There are no lower plans to be found.
    least = arena
    for choice in sorted(choices.fitting(arena, host_budget), key=lambda choice: choice.plan.peak):
        if choice.plan.peak >= least:
            break
        least = min(least, max(choice.plan.peak, choices.follow(choice, arena).arena))
        before.restore()
    function.ops = given
    asked = None if host_budget is None else host_budget + moved
    raise over_budget(whole, taken.with_bytes(ARENA, least + room), asked)


def bytes_taken(module: Module, function: Function, alignment: int, total: bool) -> Footprint:
    """What a function takes, the arena alone without `total`. New contents of states will lie in the states."""
    taken = footprint_of(function, replace(module.target, alignment=alignment))
    updates = (v for v in function.returns if v.op is not None and assigned_state(v.op) is not None)
    taken = taken.with_bytes(IO, taken[IO] - sum(v.type.nbytes for v in updates))
    return taken if total else taken.only(ARENA)


def costs_of(module: Module, target: Kind | None, profile: str | None) -> CostModel:
    """What ops cost on a kind of target, the module's own without one, or as a profile has it. Raises UsageError for a profile that
    is none."""
    kind = module.target.kind if target is None else target
    if profile is None:
        return CostModel(DEVICES[kind])
    runs_on = module.target if kind == module.target.kind else Target.of(kind)
    return CostModel(DEVICES[kind], read_measured(profile, "profile", runs_on).ops)


def require_unplaced(name: str, function: Function) -> None:
    """Raise UsageError, which begins with the name of a pass, for a function whose values have placements."""
    if any(v.placement is not None for v in function.values()):
        raise UsageError(f"{name}: expected a function without placements; run it before passes that place")


@dataclass(frozen=True)
class Rematerialize(Pass):
    """An order of ops of lower peak, and, where that does not keep the budget, results dropped and recomputed."""

    name: ClassVar[str] = "rematerialize"
    orders: ClassVar[bool] = True
    budget: Budget = Budget(percent=100.0)
    """Bytes, for example `4GiB`, or percent of what it takes without recomputation, of each function's arena."""
    total: bool = False
    """Count weights, states, inputs and outputs of the function too."""
    target: Optional[Kind] = None
    """Whose speed the cost of an op is guessed from."""
    profile: str | None = None
    """A JSON file of measured seconds by op signature, which count instead."""
    solver: Solver = "search"
    """`exact`: the proven optimum for small functions, where it is found."""
    time_limit: Seconds | None = None
    """Wall time of `solver=exact` for each function; `none` bounds its work, so that every run gives the same plan."""
    slack: Share = 0.0
    work: Amount = Search.work
    """How orders are sought, as in `reorder`."""
    alignment: Optional[Alignment] = None

    def check(self) -> None:
        """Raise UsageError for a time limit that nothing would read."""
        if self.time_limit is not None and self.solver != "exact":
            raise UsageError(f"{self.name}: expected solver=exact beside time-limit, got solver={self.solver}")

    def apply(self, module: Module) -> Recomputation | None:
        costs = costs_of(module, self.target, self.profile)
        said = None
        for function in module.functions:
            require_unplaced(self.name, function)
            search = Search(slack=self.slack, work=self.work)
            how = (alignment_of(self.alignment, module), self.total, search, self.solver, self.time_limit)
            found = rematerialize(module, function, self.budget, costs, *how)
            said = found if function.name == "main" else said
        return said
