# SPDX-License-Identifier: Apache-2.0
"""The integer program of order, alone and with addresses, on dataflow graphs, beside the heuristics.

    python benchmarks/ilp.py --graphs DIR [--ops 400] [--time-limit 60]

Peaks are in bytes; seconds are this process's on all cores together, so other load does not disturb them. Joint plans
align addresses to 512 bytes, as PyTorch's allocator does.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from memc.frontend.graph import read_graph
from memc.planning.graph_problems import order_problem
from memc.solvers.exact.order_ilp import JointSolution, solve_joint
from memc.solvers.order import OrderSolution, order_peak, solve_order

ALIGNMENT = 512


def cells(solution: OrderSolution | JointSolution, start: float) -> list[Any]:
    seconds = time.process_time() - start
    status = "optimal" if solution.proven_optimal else f"{100 * (solution.peak / solution.lower_bound - 1):.2f} % open"
    return [f"{solution.peak:,}", f"{solution.lower_bound:,}", status, f"{seconds:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, metavar="DIR", help="folder of .json or .json.gz graphs")
    parser.add_argument("--ops", type=int, default=400, help="graphs of more ops are left out")
    parser.add_argument("--time-limit", type=float, help="seconds for each; without it, a fixed amount of work")
    options = parser.parse_args()
    limit = options.time_limit
    print(
        "| graph | ops | given order | heuristics | `ilp` | bound | status | s | with addresses | bound | status | s |"
    )
    print("| --- " * 12 + "|")
    for path in sorted(options.graphs.glob("*.json*")):
        problem = order_problem(read_graph(path))
        ops = len(problem.touches)
        if ops > options.ops:
            continue
        row: list[Any] = [
            path.name.removesuffix(".gz").removesuffix(".json"),
            ops,
            f"{order_peak(problem, range(ops)):,}",
        ]
        row.append(f"{solve_order(problem, 'auto').peak:,}")
        start = time.process_time()
        row += cells(solve_order(problem, "ilp", time_limit=limit), start)
        start = time.process_time()
        row += cells(solve_joint(problem, alignment=ALIGNMENT, time_limit=limit), start)
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
