# SPDX-License-Identifier: Apache-2.0
"""Plans of streamed weights, from which budgets choose."""

from __future__ import annotations

from dataclasses import dataclass, field

from memc.ir.core import Function
from memc.ir.cost_model import CostModel
from memc.ir.footprint import Footprint
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot
from memc.ir.spaces import ARENA, HOST
from memc.passes.budget import Budget
from memc.passes.offload.weight_streams import WeightStreams
from memc.passes.order.reorder import Search
from memc.passes.recompute.choices import Choice, Copied, Copies, Recomputation
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.rematerialize import Plans, bytes_taken
from memc.passes.recompute.rewrite import rewrite
from memc.solvers.offload import Lane, Step
from memc.solvers.stream_weights import StreamPlan, stream_ladder

SHARES = (0.85, 0.7, 0.55, 0.4, 0.25, 0.0)
"""Of the arena: the quickest plan of copies and recomputation within each may have streamed weights, too."""


@dataclass(frozen=True)
class Kept:
    """What a function is to keep, and what times are counted on."""

    budget: Budget
    """Of arena, weights, inputs and outputs."""
    costs: CostModel
    alignment: int
    search: Search
    """For the order of ops."""
    copies: Copies


@dataclass(frozen=True)
class StreamChoice:
    """A plan of streamed weights, beside copies and recomputation that are decided already."""

    base: Choice | None
    """None: nothing is decided."""
    plan: StreamPlan
    peak: int
    """Bytes of all, before addresses."""

    @property
    def copied(self) -> int:
        """Bytes that come in, and those that leave before."""
        return self.plan.bytes + (0 if self.base is None else self.base.plan.bytes_in + self.base.plan.bytes_out)


@dataclass
class StreamChoices:
    """The plans of a function that budgets choose from. The function has its best order, in which all weights are resident, and is
    left so where nothing else is said."""

    module: Module
    function: Function
    how: Kept
    taken: Footprint
    """Of the best order, with planned addresses."""
    plans: Plans
    """The best order and others, and what is found without streams."""
    found: list[StreamChoice] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)
    """Plans that take more than the budget with addresses, by their numbers."""

    def __post_init__(self) -> None:
        self.before = Snapshot.of(self.module, self.function)
        how = self.how
        self.starts = self.plans.orders(self.function, how.costs, how.alignment)
        self.once = sum(map(self.how.costs.cost, self.function.ops))
        """Picoseconds of one run of every op."""
        self.resident = self.taken.peak - self.taken[ARENA]
        """Bytes beside the arena's, all weights among them."""

    def add(self, base: Choice | None = None) -> None:
        """Add plans beside a choice."""
        streams = self._decided(base)
        elsewhere = 0 if base is None else base.plan.copied_peak
        problem = streams.problem(self.how.costs.cost, self.how.copies, elsewhere, self.how.alignment)
        outside = self.resident - sum(problem.sizes)
        self.found += [StreamChoice(base, plan, plan.peak + outside) for plan in stream_ladder(problem)]
        self.before.restore()

    def add_all(self) -> None:
        """Add plans beside some of the choices of copies and recomputation."""
        how = self.how
        choices = self.plans.choices(self.function, how.costs, how.alignment, 0, how.copies)
        least, most = choices.least().plan.peak, self.taken[ARENA]
        bases: dict[int, Choice] = {}
        for share in SHARES:
            fitting = choices.fitting(max(least, int(share * most)), self.how.copies.host_budget)
            bases.update({id(choice): choice for choice in fitting[:1] if choice.plan.peak < most})
        for base in bases.values():
            self.add(base)

    def best(self, whole: int) -> Recomputation | None:
        """Make the function what the quickest plan within `whole` bytes says. None, and the function as it was, if none keeps them."""
        quickest = sorted(range(len(self.found)), key=lambda n: _order(self.found[n]))
        for number in quickest:
            choice = self.found[number]
            if choice.peak > whole or number in self.refused:
                continue
            taken = self._follow(choice)
            if taken.peak <= whole and self._keeps_host():
                return self._finding(choice, whole, taken[ARENA])
            self.refused.add(number)
            self.before.restore()
        return None

    def least(self) -> Footprint:
        """What the lowest plan takes, with addresses."""
        lowest = min(self.found, key=lambda choice: choice.peak)
        taken = self._follow(lowest)
        self.before.restore()
        return taken

    def _decided(self, base: Choice | None) -> WeightStreams:
        """Make the function what a choice says."""
        if base is not None:
            self.function.ops = list(base.ops)
            rewrite(base.graph, base.plan.items)
        return WeightStreams.of(self.function, self.how.copies.least)

    def _follow(self, choice: StreamChoice) -> Footprint:
        """Make the function what a plan says. Returns what it then takes."""
        self._decided(choice.base).follow(choice.plan.windows)
        taken = bytes_taken(self.module, self.function, self.how.alignment, True)
        return taken.with_bytes(ARENA, planned_arena(self.function, self.how.alignment, quick=True))

    def _keeps_host(self) -> bool:
        budget = self.how.copies.host_budget
        return budget is None or planned_arena(self.function, self.how.alignment, budget, space=HOST) <= budget

    def _finding(self, choice: StreamChoice, whole: int, arena: int) -> Recomputation:
        """Of a choice that the function follows, whose arena takes `arena` bytes."""
        plan, base, copies = choice.plan, choice.base, self.how.copies
        graph = self.starts.found[0][0] if base is None else base.graph
        items = () if base is None else base.plan.items
        runs = sum(len(graph.units[number]) for step, number in items if step is Step.RUN)
        computing = self.once if base is None else base.plan.computing
        copied = Copied(
            copies.link,
            len(plan.windows) + sum(step in (Step.OUT_START, Step.IN_START) for step, _ in items),
            0 if base is None else base.plan.bytes_out,
            plan.bytes + (0 if base is None else base.plan.bytes_in),
            self._share(plan.makespan - computing),
            alone=None,
            alone_at_least=self._at_least(self.taken[ARENA], whole),
            at_least=self._at_least(self.starts.bound, whole),
            at_least_by="what weights must come in",
            by=copies,
            immovable=graph.reasons(copies.least),
        )
        repeats = runs - sum(map(len, graph.units)) if items else 0
        return Recomputation(self.taken[ARENA], arena, self._share(plan.makespan - self.once), repeats, copied)

    def _at_least(self, arena: int, whole: int) -> float:
        """The time that is added at least if an arena of so many bytes is needed: of what is then beyond the budget, all comes in."""
        lane: Lane = self.how.copies.lanes.back
        over = max(0, arena + self.resident - whole)
        return self._share(max(0, over * lane.per_mib // 2**20 - self.once))

    def _share(self, picoseconds: int) -> float:
        return picoseconds / max(1, self.once)


def _order(choice: StreamChoice) -> tuple[int, int, int, int]:
    """The quickest first."""
    return choice.plan.makespan, choice.copied, len(choice.plan.windows), choice.peak
