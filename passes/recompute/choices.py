# SPDX-License-Identifier: Apache-2.0
"""Plans of recomputation and copies, from which budgets choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from memc.ir.core import Function, Op
from memc.ir.cost_model import CostModel
from memc.ir.liveness import ALIGNMENT
from memc.ir.spaces import HOST
from memc.passes.base import Finding
from memc.passes.offload.state_finding import StatesOnHost
from memc.passes.recompute.bound import least_possible
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.problem import RecomputeGraph
from memc.passes.recompute.rewrite import rewrite
from memc.solvers.exact.offload_bound import added_at_least, moments
from memc.solvers.exact.recompute import solve_recompute
from memc.solvers.offload import Lanes, OffloadProblem, Schedule, Step, copies_at_least, offload_ladder
from memc.solvers.recompute import RecomputeProblem, measure_sequence, recompute_ladder

FAR = 1.2
"""How many times the best order's peak another may have, if recomputation is to start from it too."""


@dataclass(frozen=True)
class Recomputation(Finding):
    """What `rematerialize` did to a function."""

    without: int
    """Bytes of the arena in the order that `reorder` finds, without recomputation."""
    arena: int
    """Bytes, addresses included."""
    added: float
    """By how much longer the function takes in the cost model, waits for copies included, as a share of one run of every op."""
    repeats: int
    """Recomputed ops, each time counted."""
    copied: Copied | None = None
    """None where copies were not asked for."""
    policy: str = "none"
    """What decided on copies: nothing, `auto` for the search, or a published policy by its name."""
    states: StatesOnHost | None = None
    """Optimizer states that lie on the host between steps, which `added` counts too; None for none."""


@dataclass(frozen=True)
class Copies:
    """By which values may leave the arena for a while."""

    link: str
    """The name of what the values are copied over."""
    lanes: Lanes
    least: int = 1 << 16
    """Bytes that a value must have to be copied; by itself about as many as move in the latency of a copy."""
    host_budget: int | None = None
    """Bytes of copies at one time; None for any number."""
    origin: str = ""
    """Where the link's rates are from, in words."""


@dataclass(frozen=True)
class Copied:
    """Copies out of the arena and back."""

    link: str
    """Whose rates were counted on."""
    count: int
    """Of both directions."""
    bytes_out: int
    bytes_in: int
    waiting: float
    """How long ops wait for copies, as a share of one run of every op."""
    alone: float | None
    """`Recomputation.added` by recomputation alone, as the cheapest plan within the budget has it, addresses not tried; None
    where none keeps the budget."""
    alone_at_least: float
    """Below this no schedule of copies alone is that runs the ops once, in the order chosen, within the budget."""
    at_least: float | None = None
    """Below this no schedule of copies and recomputation is that runs the ops for the first time in the sequence of this one, within
    the budget; None where no bound was found."""
    at_least_by: str = ""
    """What says so, in words."""
    by: Copies | None = None
    """What was counted on."""
    immovable: Mapping[str, str] = field(default_factory=dict)
    """Why values may not be copied, by their names."""


def _program(looked_at: int, there_are: int) -> str:
    """How `Copied.at_least` was found."""
    return "linear program" + ("" if looked_at == there_are else f", {looked_at} of {there_are} moments")


@dataclass(frozen=True)
class Choice:
    """A plan, and the graph whose order of ops it starts from."""

    graph: RecomputeGraph
    ops: tuple[Op, ...]
    """The function's ops in that order."""
    plan: Schedule

    def share(self, picoseconds: int) -> float:
        """Of the duration of one run of every op."""
        return picoseconds / max(1, sum(self.graph.problem.costs))


@dataclass(frozen=True)
class Starts:
    """The orders of a function's ops that recomputation starts from."""

    function: Function
    alignment: int
    found: tuple[tuple[RecomputeGraph, tuple[Op, ...]], ...]
    bound: int
    """Bytes that no sequence is below."""

    @staticmethod
    def of(function: Function, orders: Iterable[Sequence[Op]], costs: CostModel, alignment: int = ALIGNMENT) -> Starts:
        """Those of `orders` that are not far above the best."""
        before = list(function.ops)
        found: list[tuple[RecomputeGraph, tuple[Op, ...]]] = []
        for ops in dict.fromkeys(map(tuple, orders)):
            function.ops = list(ops)
            found.append((RecomputeGraph.of(function, costs.cost, alignment), ops))
        function.ops = before
        peaks = [_peak(graph.problem) for graph, _ in found]
        near = tuple(start for start, peak in zip(found, peaks) if peak <= FAR * min(peaks))
        return Starts(function, alignment, near, least_possible(near[0][0].problem))

    def choices(self, lowest: int, copies: Copies | None = None) -> Choices:
        """Plans from each, down to about `lowest` bytes, or as low as was found; with `copies` values may be copied, too."""

        def search(start: tuple[RecomputeGraph, tuple[Op, ...]]) -> list[Schedule]:
            problem = start[0].problem
            if copies is None:
                plans = recompute_ladder(problem, lowest, self.bound)
                return [Schedule.of_runs(problem, plan) for plan in plans]
            moves = OffloadProblem(problem, start[0].movable(copies.least), copies.lanes, copies.host_budget)
            return offload_ladder(moves, lowest, self.bound)

        with ThreadPoolExecutor(len(self.found)) as threads:
            ladders = threads.map(search, self.found)
        found = [Choice(*start, plan) for start, plans in zip(self.found, ladders) for plan in plans]
        return Choices(self.function, self.alignment, tuple(found))


@dataclass(frozen=True)
class Choices:
    """The plans that budgets choose from."""

    function: Function
    alignment: int
    found: tuple[Choice, ...]

    def solved(self, limit: int, time_limit: float | None) -> Choices:
        """These, and from each of their orders the cheapest plan of at most `limit` bytes that the exact solver finds; the
        orders share the `time_limit` (seconds). Raises UsageError for too many ops."""
        graphs = {id(choice.graph): choice for choice in self.found}
        share = None if time_limit is None else time_limit / len(graphs)
        solved = ((start, solve_recompute(start.graph.problem, limit, share).plan) for start in graphs.values())
        better = tuple(
            Choice(start.graph, start.ops, Schedule.of_runs(start.graph.problem, plan))
            for start, plan in solved
            if plan is not None
        )
        return Choices(self.function, self.alignment, better + self.found)

    def fitting(self, budget: int, host_budget: int | None = None) -> list[Choice]:
        """Those of at most `budget` bytes, with at most `host_budget` bytes of copies, the cheapest first.

        Who takes the first one gets a peak that never rises as the budget falls: either the choice for a higher budget
        fits the lower one too, and is its first one, or its peak is above the lower budget.
        """
        fitting = [
            choice
            for choice in self.found
            if choice.plan.peak <= budget and (host_budget is None or choice.plan.copied_peak <= host_budget)
        ]
        return sorted(fitting, key=lambda choice: (choice.plan.added, choice.plan.bytes_in, choice.plan.peak))

    def least(self) -> Choice:
        """The one of the lowest peak."""
        return min(self.found, key=lambda choice: choice.plan.peak)

    def follow(self, choice: Choice, without: int, most: int | None = None) -> Recomputation:
        """Make the function, unchanged since `Starts.of`, run as `choice` says. Returns what comes of it, where the arena takes
        `without` bytes without recomputation. `most`: as in `planned_arena`.

        For plans with copies, of which there are many that are nearly as good, few addresses are tried: the arena may take less in
        the end, and not more.
        """
        self.function.ops = list(choice.ops)
        rewrite(choice.graph, choice.plan.items)
        arena = planned_arena(self.function, self.alignment, most, quick=choice.plan.bytes_in > 0)
        units = choice.graph.units
        repeats = sum(len(units[n]) for step, n in choice.plan.items if step is Step.RUN) - sum(map(len, units))
        return Recomputation(without, arena, choice.share(choice.plan.added), repeats)

    def keeps_host(self, budget: int | None) -> bool:
        """Whether what the function, changed by `follow`, copies out of the arena takes at most `budget` bytes, addresses included."""
        return budget is None or planned_arena(self.function, self.alignment, budget, space=HOST) <= budget

    def copied(self, choice: Choice, budget: int, copies: Copies) -> Copied:
        """The copies of a choice, beside what recomputation alone costs within `budget` bytes."""
        plan = choice.plan
        alone = [other.plan.added for other in self.found if other.plan.peak <= budget and not other.plan.bytes_in]
        problem = OffloadProblem(choice.graph.problem, choice.graph.movable(copies.least), copies.lanes)
        at_least = added_at_least(problem, budget, plan.first_runs)
        return Copied(
            copies.link,
            sum(step in (Step.OUT_START, Step.IN_START) for step, _ in plan.items),
            plan.bytes_out,
            plan.bytes_in,
            choice.share(plan.makespan - plan.computing),
            choice.share(min(alone)) if alone else None,
            choice.share(copies_at_least(problem, budget)),
            None if at_least is None else choice.share(at_least),
            _program(*moments(problem, budget, plan.first_runs)),
            by=copies,
            immovable=choice.graph.reasons(copies.least),
        )


def _peak(problem: RecomputeProblem) -> int:
    """Bytes, without recomputation."""
    return measure_sequence(problem, range(len(problem.costs))).peak
