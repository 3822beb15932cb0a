# SPDX-License-Identifier: Apache-2.0
"""Order and addresses together, of PyTorch's own training graphs, beside the memory that PyTorch reserves for them.

    python benchmarks/joint.py --graphs DIR --baseline FILE.json [--alignment 512] [--repeat 3] > FILE.md

memc: what is there throughout (the graph's inputs: weights, batch, labels; each rounded up), plus the arena of the
joint plan. PyTorch: `peak_reserved` of the baseline file, in bytes, by the graph's name. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import memc
from memc.frontend.graph import read_graph
from memc.ir.sizes import align

MB = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--baseline", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--alignment", type=int, default=512, help="bytes; 512 is PyTorch's own on CUDA")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median time counts")
    options = parser.parse_args()
    baseline = json.loads(options.baseline.read_text())
    print("| graph | ops | PyTorch reserved MB | persistent MB | memc arena MB | memc lower | proven | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    lower: dict[str, list[float]] = {}
    times: list[float] = []
    for path in sorted(options.graphs.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        graph = read_graph(path)
        plans = [memc.plan(graph, reorder=True, alignment=options.alignment) for _ in range(options.repeat)]
        seconds = statistics.median(plan.seconds for plan in plans)
        plan = plans[0]
        persistent = sum(align(graph.storage_bytes[s], options.alignment) for s in graph.persistent())
        reserved = baseline[name]["peak_reserved"]
        saved = 100 * (1 - (plan.peak + persistent) / reserved)
        lower.setdefault(name.rsplit(".", 1)[1], []).append(saved)
        times.append(seconds)
        figures = [reserved / MB, persistent / MB, plan.peak / MB]
        shown = " | ".join(f"{figure:,.1f}" for figure in figures)
        proven = "yes" if plan.proven_optimal else f"gap {plan.gap_percent:.2f} %"
        print(f"| {name} | {len(graph.ops)} | {shown} | {saved:.1f} % | {proven} | {seconds:.2f} |", flush=True)
    print()
    for batch, savings in sorted(lower.items()):
        print(f"{batch}: {statistics.mean(savings):.1f} % lower on average, {min(savings):.1f} % at least.")
    print(f"Seconds: {statistics.median(times):.2f} in the median, {max(times):.2f} at most.")


if __name__ == "__main__":
    main()
