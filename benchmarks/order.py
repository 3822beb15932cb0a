# SPDX-License-Identifier: Apache-2.0
"""Operator order: every solver's peak and time on dataflow graphs, and on a generated training step of 100,000 ops.

    python benchmarks/order.py [--graphs DIR] [--reference FILE.json] [--layers N] > FILE.md

Prints Markdown. Peaks are in MB (10^6 bytes) or in percent above the bound that `auto` proves; times are CPU
milliseconds through the Python interface, the least of three runs. `ilp` has a benchmark of its own (`ilp.py`). The
reference file maps a graph's name to orders with a `peak` each, in bytes. The generated step runs in a process of its
own, whose largest resident set is its memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from training_graphs import transformer_training

from memc.frontend.graph import read_graph
from memc.planning.graph_problems import order_problem
from memc.solvers.order import OrderProblem, OrderSolution, order_peak, order_solver_names, solve_order
from memc.solvers.placement import Buffer, Problem, check, lower_bound, solve

MB = 1e6


def timed(problem: OrderProblem, solver: str, repeat: int = 3) -> tuple[OrderSolution, float]:
    """The solution, checked, and CPU seconds."""
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        solution = solve_order(problem, solver)
        seconds.append(time.process_time() - start)
    if order_peak(problem, solution.order) != solution.peak:
        raise RuntimeError(f"{solver}: the order's peak is not {solution.peak}")
    return solution, min(seconds)


def print_graphs(paths: Sequence[Path], reference: dict[str, Any]) -> None:
    solvers = [name for name in order_solver_names() if name not in ("auto", "given", "ilp")]
    columns = ["graph", "ops", "given MB", *(["reference"] if reference else []), *(f"`{name}`" for name in solvers)]
    columns += ["`auto` MB", "below given", "bound MB", "gap"]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    seconds: dict[str, list[float]] = {name: [] for name in (*solvers, "auto")}
    above, proven, within = 0, 0, 0
    saved: dict[str, list[float]] = {}
    """Percent below the given order, by what ends the graph's name after a dot: its batch."""
    for path in paths:
        name, problem = path.name.removesuffix(".gz").removesuffix(".json"), order_problem(read_graph(path))
        given = order_peak(problem, range(len(problem.touches)))
        best, spent = timed(problem, "auto")
        seconds["auto"].append(spent)
        bound = best.lower_bound
        row = [name, str(len(problem.touches)), f"{given / MB:.3f}"]
        if reference:
            known = min(entry["peak"] for entry in reference[name].values() if isinstance(entry, dict))
            above += best.peak > known
            row.append(f"{_above(known, bound)}")
        for solver in solvers:
            solution, spent_here = timed(problem, solver)
            seconds[solver].append(spent_here)
            row.append(f"{_above(solution.peak, bound)}, {1000 * spent_here:.1f} ms")
        proven += best.proven_optimal
        within += best.peak <= 1.01 * bound
        below = 100 * (1 - best.peak / given)
        saved.setdefault(name.rpartition(".")[2], []).append(below)
        row += [f"{best.peak / MB:.3f}, {1000 * spent:.1f} ms", f"{below:.1f} %"]
        row += [f"{bound / MB:.3f}", "proven" if best.proven_optimal else _above(best.peak, bound)]
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"\n`auto`: proven optimal on {proven} of {len(paths)}, within 1 % of the bound on {within}", end="")
    print(f", above the reference on {above}.\n" if reference else ".\n")
    print("Below the given order on average:", end=" ")
    print(", ".join(f"{statistics.mean(of):.1f} % ({batch})" for batch, of in saved.items()), end=".\n\n")
    print("| solver | median ms | slowest ms |\n| --- | --- | --- |")
    for solver, times in seconds.items():
        print(f"| `{solver}` | {1000 * statistics.median(times):.1f} | {1000 * max(times):.1f} |")


def _above(peak: int, bound: int) -> str:
    """Percent above the bound."""
    return f"+{100 * (peak - bound) / bound:.3f} %" if peak != bound else "0"


def lifetimes(problem: OrderProblem, order: Sequence[int]) -> Problem:
    """The storages as buffers, live as this order has it."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, op in enumerate(order):
        for storage in problem.touches[op]:
            first.setdefault(storage, step)
            last[storage] = len(order) if storage in problem.kept else step + 1
    return Problem([Buffer(problem.sizes[storage], lower, last[storage]) for storage, lower in first.items()])


def print_generated(layers: int) -> None:
    """Orders and places a step of a transformer of so many layers."""
    problem = transformer_training(layers)
    given = order_peak(problem, range(len(problem.touches)))
    wall, cpu = time.perf_counter(), time.process_time()
    best = solve_order(problem)
    order_wall, order_cpu = time.perf_counter() - wall, time.process_time() - cpu
    placement = lifetimes(problem, best.order)
    wall, cpu = time.perf_counter(), time.process_time()
    plan = solve(placement)
    place_wall, place_cpu = time.perf_counter() - wall, time.process_time() - cpu
    if not check(placement, plan).ok or lower_bound(placement) != best.peak:
        raise RuntimeError("the plan does not hold")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"\n{len(problem.touches):,} ops of {layers} layers, {len(problem.sizes):,} storages:\n")
    print("| what | peak MB | above bound | wall s | CPU s |\n| --- | --- | --- | --- | --- |")
    print(f"| given | {given / MB:.3f} | {_above(given, best.lower_bound)} | | |")
    row = f"{best.peak / MB:.3f} | {_above(best.peak, best.lower_bound)} | {order_wall:.1f} | {order_cpu:.1f}"
    print(f"| ordered by `auto` | {row} |")
    row = f"{plan.peak / MB:.3f} | {_above(plan.peak, best.lower_bound)} | {place_wall:.1f} | {place_cpu:.1f}"
    print(f"| placed by `auto` | {row} |\n\nLargest resident set: {memory / 1e9:.2f} GB.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, metavar="DIR", help="folder of .json or .json.gz graphs")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="peaks to compare with")
    parser.add_argument("--layers", type=int, default=1000, help="of the generated step; 0: none (default: 1000)")
    arguments = parser.parse_args()
    if arguments.graphs:
        reference = json.loads(arguments.reference.read_text()) if arguments.reference else {}
        print_graphs(sorted(arguments.graphs.glob("*.json*")), reference)
    if arguments.layers:
        process = multiprocessing.get_context("spawn").Process(target=print_generated, args=(arguments.layers,))
        process.start()
        process.join()
        sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
