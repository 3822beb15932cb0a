# SPDX-License-Identifier: Apache-2.0
"""The integer program of order, alone and with addresses, on dataflow graphs, beside the heuristics.

    python benchmarks/ilp.py --graphs DIR [--ops 400] [--time-limit 60]

DIR holds `NAME.json.gz` files: `tensors` with `storage` and `storage_bytes`; `ops` with tensor indices `inputs` and
`outputs` and the storages each `writes`; `inputs` and `outputs` of the graph. Storages of inputs are not counted. Peaks
are in bytes; seconds are this process's on all cores together, so other load does not disturb them. Joint plans align
addresses to 512 bytes, as PyTorch's allocator does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

from memc.passes.order_ilp import JointSolution, solve_joint
from memc.passes.order_solvers import OrderProblem, OrderSolution, order_peak, solve_order

ALIGNMENT = 512


def read(path: Path) -> OrderProblem:
    """The graph's ops, with dependencies read after write, write after read and write after write over storages."""
    with gzip.open(path) as file:
        graph = json.load(file)
    tensors: list[dict[str, int]] = graph["tensors"]
    nbytes = {tensor["storage"]: tensor["storage_bytes"] for tensor in tensors}
    persistent = {tensors[index]["storage"] for index in graph["inputs"]}
    numbers = {storage: number for number, storage in enumerate(s for s in nbytes if s not in persistent)}
    touches: list[list[int]] = []
    after: list[list[int]] = []
    writer: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    for number, op in enumerate(graph["ops"]):
        writes = set(op["writes"])
        touched = writes | {tensors[index]["storage"] for index in [*op["inputs"], *op["outputs"]]}
        needed = {writer[storage] for storage in touched if storage in writer}
        for storage in touched:
            if storage in writes:
                needed |= readers.pop(storage, set())
                writer[storage] = number
            else:
                readers.setdefault(storage, set()).add(number)
        after.append(sorted(needed))
        touches.append(sorted(numbers[storage] for storage in touched if storage in numbers))
    outputs = {tensors[index]["storage"] for index in graph["outputs"]}
    kept = frozenset(numbers[storage] for storage in outputs if storage in numbers)
    return OrderProblem([nbytes[storage] for storage in numbers], touches, after, kept)


def cells(solution: OrderSolution | JointSolution, start: float) -> list[Any]:
    seconds = time.process_time() - start
    status = "optimal" if solution.proven_optimal else f"{100 * (solution.peak / solution.lower_bound - 1):.2f} % open"
    return [f"{solution.peak:,}", f"{solution.lower_bound:,}", status, f"{seconds:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--ops", type=int, default=400, help="graphs of more ops are left out")
    parser.add_argument("--time-limit", type=float, help="seconds for each; without it, a fixed amount of work")
    options = parser.parse_args()
    limit = options.time_limit
    print(
        "| graph | ops | given order | heuristics | `ilp` | bound | status | s | with addresses | bound | status | s |"
    )
    print("| --- " * 12 + "|")
    for path in sorted(options.graphs.glob("*.json.gz")):
        problem = read(path)
        ops = len(problem.touches)
        if ops > options.ops:
            continue
        row: list[Any] = [path.name.removesuffix(".json.gz"), ops, f"{order_peak(problem, range(ops)):,}"]
        row.append(f"{solve_order(problem, 'auto').peak:,}")
        start = time.process_time()
        row += cells(solve_order(problem, "ilp", time_limit=limit), start)
        start = time.process_time()
        row += cells(solve_joint(problem, alignment=ALIGNMENT, time_limit=limit), start)
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
