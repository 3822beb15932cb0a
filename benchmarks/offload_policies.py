# SPDX-License-Identifier: Apache-2.0
"""Published policies of copies to the host beside memc's search: the exhibits of Dymem (Yang and Cheng 2020) in one simulator.

    python benchmarks/offload_policies.py --models FOLDER [--cache FOLDER] [--only NAME ...] [--no-auto] [--beta N]

Training steps over a link of 12 GB/s each way (`titanx`), with times from a roofline of a TITAN X. Of each policy's schedule: the live
bytes, what the pool of its own system takes, and memc's addresses; time added in percent of the step without copies; and what part of the
step on one stream, ops and copies one after another, is saved by running them at the same time. `auto` is the search, at budgets
that the paper's figures or the policies' own peaks give, addresses included. `--beta N` takes N steps of ResNet-101, whose ops take 5 % more
or less each time, and counts those that do not fit the pool that Dymem measured on the first one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import offload_models
import training_steps
from rematerialize import ALIGNMENT, PREPARE, TARGET

from memc.compile_options import Options
from memc.driver import load_module
from memc.ir.cost_model import CostModel, Device
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot
from memc.passes.manager import PassManager
from memc.passes.offload.layers import layered
from memc.passes.offload.link_rates import LINKS
from memc.passes.order.reorder import Search, reorder
from memc.passes.pipelines import SLACK, WORK
from memc.passes.recompute.choices import Choices, Copies, Starts
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.problem import RecomputeGraph
from memc.passes.recompute.rewrite import rewrite
from memc.solvers.offload import OffloadProblem, Schedule
from memc.solvers.offload_policies.layers import LayeredProblem
from memc.solvers.offload_policies.policy import (
    ALL,
    DYMEM,
    SUPERNEURONS,
    SUPERNEURONS_COPIES,
    VDNN_ALL,
    VDNN_CONV,
    Policy,
)
from memc.solvers.offload_policies.pools import OWN_POOLS
from memc.solvers.offload_policies.simulate import simulate

TITAN_X = CostModel(Device(flops=0.55 * 6.1e12, bandwidth=0.75 * 336e9, start=5e-6))
"""What kernels of 2016 reach of 6.1 TFLOP/s and 336 GB/s."""
LINK = LINKS["titanx"]
COPIES = Copies(LINK.name, LINK.lanes())

MIB = 1 << 20

CARD = 10 << 30
"""Bytes of the pool with which Dymem takes its first step."""


@dataclass(frozen=True)
class Case:
    """A network, and the budgets (MiB) at which `auto` is tried beside vDNN's own peak."""

    name: str
    batch: int
    budgets: tuple[int, ...]
    paper: str


CASES = (
    Case(
        "resnet_32",
        100,
        (2500, 1854, 1300, 1000),
        "ResNet-32 without batch norm: vDNN about 2,500 MB, Dymem 1,854; overlap of vDNN 12 %",
    ),
    Case("resnet50", 100, (4030, 2176, 1209), "ResNet-50: Dymem's throughput 1.42 times vDNN's"),
    Case("alexnet", 256, (), "AlexNet: Dymem 250 MB above vDNN"),
    Case("vgg16", 256, (12288, 6450), "VGG-16: all equal; 28 GB brought into 12 by vDNN, 18 % slower"),
    Case(
        "inception_v4",
        128,
        (3650, 2527, 1691, 1500),
        "Inception-v4: vDNN 3,650 MB, SuperNeurons about 3,510, Dymem 2,527; overlap of vDNN 18 %, of Dymem up to 46 %",
    ),
)


@dataclass(frozen=True)
class Step:
    """A training step as the policies see it."""

    module: Module
    graph: RecomputeGraph
    problem: LayeredProblem
    before: Snapshot

    @staticmethod
    def of(name: str, batch: int, arguments: argparse.Namespace) -> Step:
        if name in offload_models.MODELS:
            options = Options(dims={"batch": batch}, train=training_steps.SGD)
            module = load_module(offload_models.MODELS[name](), options)
            training_steps.SGD.apply(module)
        else:
            module = training_steps.training_module(name, batch, arguments.models, arguments.cache)
        module.target = TARGET
        PassManager.parse(PREPARE).run(module)
        graph = RecomputeGraph.of(module.main, TITAN_X.cost, ALIGNMENT)
        problem = OffloadProblem(graph.problem, graph.movable(COPIES.least), COPIES.lanes)
        return Step(module, graph, layered(graph, problem), Snapshot.of(module, module.main))

    @property
    def whole(self) -> int:
        """Picoseconds of one run of every op."""
        return sum(self.graph.problem.costs)

    def added(self, plan: Schedule) -> float:
        """Percent."""
        return 100 * plan.added / self.whole

    def overlapped(self, plan: Schedule) -> float:
        """Percent of the step on one stream that is saved by copies beside ops."""
        copying = sum(LINK.out.bandwidth**-1 * nbytes * 1e12 for nbytes in (plan.bytes_out, plan.bytes_in))
        return 100 * (plan.computing + copying - plan.makespan) / (plan.computing + copying)

    def arena(self, plan: Schedule) -> int:
        """Bytes of a schedule with memc's addresses."""
        rewrite(self.graph, plan.items)
        arena = planned_arena(self.module.main, ALIGNMENT)
        self.before.restore()
        return arena


def runs() -> Iterator[tuple[str, str, Policy, int]]:
    """What the first column says, the system whose pool counts, the policy and its limit in bytes."""
    yield "vdnn-conv", "vdnn-conv", VDNN_CONV, CARD
    yield "vdnn-all", "vdnn-all", VDNN_ALL, CARD
    yield "superneurons, copies alone, least pool", "superneurons", SUPERNEURONS_COPIES, 0
    yield "superneurons, least pool", "superneurons", SUPERNEURONS, 0
    yield "dymem, pool of 10 GiB", "dymem", DYMEM, CARD
    yield "dymem, least pool", "dymem", DYMEM, 0
    yield "all", "all", ALL, 0


def policies(step: Step) -> dict[str, tuple[Schedule, int]]:
    """Print a row for each policy. Returns their schedules, and the bytes of their own pools, or of planned addresses."""
    print("| policy | live MiB | own pool MiB | memc's addresses MiB | added % | moved GiB | overlapped % |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    found = {}
    for title, name, policy, limit in runs():
        plan = simulate(step.problem, policy, limit)
        arena = step.arena(plan)
        own = OWN_POOLS[name](step.problem, plan.items) if name in OWN_POOLS else None
        found[title] = (plan, arena if own is None else own)
        cells = [plan.peak // MIB, "" if own is None else own // MIB, arena // MIB, f"{step.added(plan):.1f}"]
        cells += [f"{(plan.bytes_out + plan.bytes_in) / 2**30:.1f}", f"{step.overlapped(plan):.0f}"]
        print(f"| {title} | {' | '.join(map(str, cells))} |", flush=True)
    return found


def auto(step: Step, budgets: list[int]) -> dict[int, float | None]:
    """Print a row for each budget in bytes. Returns the percent that each adds; None where it is not reached."""
    function = step.module.main
    given = list(function.ops)
    start = time.perf_counter()
    reorder(function, Search(slack=SLACK, work=WORK), ALIGNMENT)
    arena = planned_arena(function, ALIGNMENT)
    starts = Starts.of(function, [function.ops, given], TITAN_X, ALIGNMENT)
    choices = starts.choices(min(budgets), COPIES)
    seconds = time.perf_counter() - start
    before = Snapshot.of(step.module, function)
    print(
        f"\narena without copies or recomputation {arena // MIB} MiB, least possible {starts.bound // MIB}, least found "
        f"{choices.least().plan.peak // MIB}; planning {seconds:.0f} s\n"
    )
    print("| `auto` at MiB | arena MiB | added % | recomputed runs | copied out MiB |\n| --: | --: | --: | --: | --: |")
    found: dict[int, float | None] = {}
    for budget in sorted(budgets, reverse=True):
        text, found[budget] = _within(choices, before, arena, budget)
        print(text, flush=True)
    step.before.restore()
    return found


def _within(choices: Choices, before: Snapshot, arena: int, budget: int) -> tuple[str, float | None]:
    """A row, and the percent that the quickest plan adds whose arena keeps the budget."""
    if arena <= budget:
        return f"| {budget // MIB} | {arena // MIB} | 0.00 | 0 | 0 |", 0.0
    for choice in choices.fitting(budget):
        plan = choices.follow(choice, arena, budget)
        before.restore()
        if plan.arena <= budget:
            cells = (
                budget // MIB,
                plan.arena // MIB,
                f"{100 * plan.added:.2f}",
                plan.repeats,
                choice.plan.bytes_out // MIB,
            )
            return f"| {' | '.join(map(str, cells))} |", 100 * plan.added
    return f"| {budget // MIB} | not reached | | | |", None


def report(case: Case, arguments: argparse.Namespace) -> None:
    """The exhibits of one network."""
    step = Step.of(case.name, case.batch, arguments)
    print(f"\n## {case.name}, batch {case.batch}\n\nPaper: {case.paper}.\n")
    rate = case.batch / step.whole * 1e12
    print(
        f"{len(step.problem.layers)} layers both ways; {step.whole / 1e9:.0f} ms, {rate:.1f} images/s without copies.\n"
    )
    found = policies(step)
    (vdnn, pool), (dymem, _) = found["vdnn-all"], found["dymem, pool of 10 GiB"]
    print(f"\nThroughput of dymem, pool of 10 GiB, against vdnn-all: {vdnn.makespan / dymem.makespan:.2f}.")
    if arguments.no_auto:
        return
    added = auto(step, [pool, *(mib * MIB for mib in case.budgets)])
    if (best := added[pool]) is not None:
        ratio = vdnn.makespan / (step.whole * (1 + best / 100))
        print(f"\nThroughput of `auto` against vdnn-all at vdnn-all's own peak: {ratio:.2f}.")


def beta(steps: int, arguments: argparse.Namespace) -> None:
    """How many steps do not fit Dymem's pool, by how much is reserved beside what the first step took."""
    step = Step.of("resnet_101", 100, arguments)
    pool: Callable[..., int] = OWN_POOLS["dymem"]
    exact = pool(step.problem, simulate(step.problem, DYMEM, CARD).items)
    chosen = random.Random(0)
    taken = []
    for _ in range(steps):
        ops = step.graph.problem
        costs = [round(cost * chosen.uniform(0.95, 1.05)) for cost in ops.costs]
        problem = replace(step.problem, problem=replace(step.problem.problem, ops=replace(ops, costs=costs)))
        taken.append(pool(problem, simulate(problem, DYMEM, CARD).items))
    print(f"\n## The reserve: ResNet-101, batch 100, {steps} steps\n\nPaper: 5, 0.9 and 0 % of steps fail.\n")
    print(f"First step: {exact // MIB} MiB; the others {min(taken) // MIB} to {max(taken) // MIB}.\n")
    print("| reserve MB | steps that do not fit % |\n| --: | --: |")
    for reserve in (0, 100, 300, 500):
        failed = sum(each > exact + reserve * 10**6 for each in taken)
        print(f"| {reserve} | {100 * failed / steps:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    parser.add_argument("--no-auto", action="store_true", help="the policies alone")
    parser.add_argument("--beta", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    for case in CASES:
        if case.name in arguments.only:
            report(case, arguments)
    if arguments.beta:
        beta(arguments.beta, arguments)


if __name__ == "__main__":
    main()
