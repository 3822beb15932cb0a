# SPDX-License-Identifier: Apache-2.0
"""Memory of training steps beside what PyTorch reserves for them, and the duration of planning them.

    python benchmarks/training_memory.py --models DIR --cache CACHE [--batch 1 32] [--mirror POLICY] [--out FILE.md]
        [NAME ...]

A step is forward pass, cross entropy, gradients and a plain SGD update, planned at -O2 for CUDA (alignment 256) without
recomputing anything, but for what `--mirror` drops. memc's total is weights, arena (gradients and workspaces lie there) and the batch with its labels.
PyTorch's numbers come from `data/pytorch_training_memory.json`. Seconds are of CPU time, from the ONNX file to the plan, and of
the plan alone. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from training_steps import NAMES, SGD, training_module

import memc
from memc.passes.training.mirror import POLICIES, Policy
from memc.report.compile_report import Report

BASELINE = Path(__file__).resolve().parent / "data" / "pytorch_training_memory.json"
MB = 1e6


@dataclass(frozen=True)
class Row:
    """One model at one batch size; bytes, and seconds of CPU time."""

    name: str
    batch: int
    report: Report
    allocated: int
    """PyTorch's peak, as is `reserved`."""
    reserved: int
    import_seconds: float
    plan_seconds: float

    @property
    def lower(self) -> float:
        """By how much memc's total is below what PyTorch reserves, in percent of that."""
        return 100 * (1 - self.report.peak_bytes / self.reserved)

    def markdown(self) -> str:
        r = self.report
        sizes = (r.weights_bytes, r.arena_bytes, r.io_bytes, r.peak_bytes, self.allocated, self.reserved)
        cells = [self.name, f"{r.ops:,}", *(f"{size / MB:,.1f}" for size in sizes), f"{self.lower:.1f} %"]
        seconds = (self.import_seconds + self.plan_seconds, self.plan_seconds)
        cells += [f"{r.gap_percent:.2f} %", *(f"{s:.1f}" for s in seconds)]
        return f"| {' | '.join(cells)} |"


def measure(name: str, batch: int, folder: Path, cache: Path, kernels: str, mirror: Policy) -> Row:
    baseline = json.loads(BASELINE.read_text())[f"{name}.b{batch}"]
    start = time.process_time()
    module = training_module(name, batch, folder, cache, replace(SGD, mirror=mirror))
    imported = time.process_time()
    done = memc.compile(module, target="cuda", arch="sm_90", kernels=kernels, plan_only=True)
    return Row(
        name,
        batch,
        done.report,
        baseline["peak_allocated"],
        baseline["peak_reserved"],
        imported - start,
        time.process_time() - imported,
    )


def table(batch: int, rows: list[Row]) -> str:
    lines = [
        f"## Batch {batch}",
        "",
        "| model | ops | weights MB | arena MB | in and out MB | memc total MB | PyTorch allocated MB | PyTorch reserved MB "
        "| memc lower | arena over its bound | CPU s | of them planning |",
        "| --- " * 12 + "|",
        *(row.markdown() for row in rows),
        "",
    ]
    savings = [row.lower for row in rows]
    seconds = [row.import_seconds + row.plan_seconds for row in rows]
    lines += [
        f"{statistics.mean(savings):.1f} % lower than reserved on average, {min(savings):.1f} % at least. CPU seconds: "
        f"{statistics.median(seconds):.1f} in the median, {max(seconds):.1f} at most.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(NAMES))
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="holds training/*.onnx")
    parser.add_argument("--cache", type=Path, required=True, metavar="CACHE", help="where seeded weights are kept")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32], choices=(1, 32))
    parser.add_argument("--kernels", default="auto", choices=("auto", "generated"))
    parser.add_argument("--mirror", default="none", choices=POLICIES)
    parser.add_argument("--out", type=Path, metavar="FILE.md")
    options = parser.parse_args()
    tables = []
    for batch in options.batch:
        rows = []
        for name in options.names or NAMES:
            rows.append(measure(name, batch, options.models, options.cache, options.kernels, options.mirror))
            print(rows[-1].markdown(), file=sys.stderr, flush=True)
        tables.append(table(batch, rows))
    text = "\n".join(tables)
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
