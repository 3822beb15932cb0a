# SPDX-License-Identifier: Apache-2.0
"""The search for recomputation against the optimum, on training steps of up to 200 ops and random layered graphs.

    python benchmarks/recompute_exact.py [--models FOLDER] [--cache FOLDER] [--work 4] [--only NAME ...]

Costs are in points: percent of one run of every op, in the cost model (an H100). Limits are shares of the peak without
recomputation, in the order that `reorder` finds. Where the optimum is not proven within `--work` units of CP-SAT's
deterministic clock, the proven bound on it counts, so that gaps are at most what is shown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import small_models
import training_steps
from rematerialize import ALIGNMENT, COSTS, PREPARE, TARGET

from memc.compile_options import Options
from memc.driver import load_module
from memc.ir.module import Module
from memc.passes.manager import PassManager
from memc.passes.order.reorder import Search, reorder
from memc.passes.pipelines import SLACK, WORK
from memc.passes.recompute.problem import RecomputeGraph
from memc.solvers.exact.recompute import solve_recompute
from memc.solvers.recompute import RecomputeProblem, measure_sequence, recompute_ladder

SHARES = (0.9, 0.8, 0.7, 0.6)
LAYERED = (20, 30, 40, 50, 75, 100)
"""Forward ops of the random graphs."""
SHARED = ("alexnet", "vgg16")
"""Of the shared models, those of up to 200 ops; at batch 32."""


def training_problem(module: Module) -> RecomputeProblem:
    module.target = TARGET
    PassManager.parse(PREPARE).run(module)
    reorder(module.main, Search(slack=SLACK, work=WORK), ALIGNMENT)
    return RecomputeGraph.of(module.main, COSTS.cost, ALIGNMENT).problem


def problems(arguments: argparse.Namespace) -> Iterator[tuple[str, RecomputeProblem]]:
    for name, (make, batch) in small_models.MODELS.items():
        model = make()
        shape = [batch, *(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:])]
        module = load_module(model, Options(input_shapes={"x": shape}, train=training_steps.SGD))
        training_steps.SGD.apply(module)
        yield f"{name}, batch {batch}", training_problem(module)
    for name in SHARED if arguments.models else ():
        module = training_steps.training_module(name, 32, arguments.models, arguments.cache)
        yield f"{name}, batch 32", training_problem(module)
    for seed, forward in enumerate(LAYERED):
        yield f"layered {seed}", small_models.layered(seed, forward)


@dataclass(frozen=True)
class Comparison:
    """Of search and optimum at one limit; costs in points."""

    search: float | None
    """None if the limit was not reached."""
    bound: float | None
    """None if the limit is proven impossible."""
    proven: bool

    @property
    def gap(self) -> float | None:
        return None if self.search is None or self.bound is None else self.search - self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return "impossible"
        found = "not reached" if self.search is None else f"{self.search:.2f}"
        return f"{found} / {'' if self.proven else '>= '}{self.bound:.2f}"


def compared(problem: RecomputeProblem, share: float, work: float) -> Comparison:
    limit = int(share * measure_sequence(problem, range(len(problem.costs))).peak)
    point = sum(problem.costs) / 100
    costs = [plan.added_cost for plan in recompute_ladder(problem, limit) if plan.peak <= limit]
    solution = solve_recompute(problem, limit, work=work)
    bound = None if solution.lower_bound is None else solution.lower_bound / point
    return Comparison(min(costs) / point if costs else None, bound, solution.proven_optimal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--work", type=float, default=4.0)
    parser.add_argument("--only", nargs="*", help="names of graphs, without the batch")
    arguments = parser.parse_args()
    heads = " | ".join(f"{100 * share:.0f} %: search / optimum" for share in SHARES)
    print(f"| graph | ops | {heads} | CPU s |")
    print("| --- | --: |" + " --: |" * (len(SHARES) + 1))
    found: list[Comparison] = []
    for name, problem in problems(arguments):
        if arguments.only and name.split(",")[0] not in arguments.only:
            continue
        start = time.process_time()
        row = [compared(problem, share, arguments.work) for share in SHARES]
        seconds = time.process_time() - start
        print(f"| {name} | {len(problem.costs)} | {' | '.join(map(str, row))} | {seconds:.1f} |", flush=True)
        found += row
    possible = [one for one in found if one.bound is not None]
    gaps = [one.gap for one in possible if one.gap is not None]
    exact = [one.gap for one in possible if one.gap is not None and one.proven]
    print(f"\n{len(found)} limits, {len(found) - len(possible)} of them proven impossible, {len(exact)} optima proven.")
    if exact:
        print(f"Gap where proven: {statistics.mean(exact):.2f} points in the mean, {max(exact):.2f} at most.")
    if gaps:
        print(f"Gap to the bound, all: {statistics.mean(gaps):.2f} points in the mean, {max(gaps):.2f} at most.")


if __name__ == "__main__":
    main()
