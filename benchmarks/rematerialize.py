# SPDX-License-Identifier: Apache-2.0
"""Recomputation under budgets: training steps of the shared models, at shares of the arena that they take without it.

    python benchmarks/rematerialize.py --models FOLDER [--cache FOLDER] [--batch 32] [--only NAME ...] [--sweep N]

`added` is the cost of what is recomputed in percent of one run of every op, in the cost model (an H100). `planning` is the
wall time of the search, in two threads, down to the lowest budget, which is what any of them takes at most; it comes
after `reorder`.
`--sweep N` instead tries N budgets from the whole arena downwards and checks that the peak never rises.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import training_steps

from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.module import Module
from memc.ir.sizes import format_size
from memc.ir.snapshot import Snapshot
from memc.ir.target import Target
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager
from memc.passes.order.reorder import Search, reorder
from memc.passes.pipelines import SLACK, WORK
from memc.passes.recompute.choices import Choices, Starts
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.rematerialize import SPARE

SHARES = (0.9, 0.75, 0.5, 0.27)
TARGET = Target.of("cuda")
ALIGNMENT = TARGET.alignment
COSTS = CostModel(DEVICES["cuda"])
PREPARE = (
    "materialize-returns,canonicalize,decompose,canonicalize,join-products,fuse-library,fuse,"
    "select-kernels{workspace=least}"
)


def prepared(name: str, batch: int, arguments: argparse.Namespace) -> Module:
    """The training step of a model as `rematerialize` meets it."""
    module = training_steps.training_module(name, batch, arguments.models, arguments.cache)
    module.target = TARGET
    PassManager.parse(PREPARE).run(module)
    return module


def choices_of(module: Module, share: float) -> tuple[Choices, int, int, float]:
    """Plans down to a share of the arena; that arena and the bound, in bytes, and the seconds of the search."""
    function = module.main
    given = list(function.ops)
    reorder(function, Search(slack=SLACK, work=WORK), ALIGNMENT)
    arena = planned_arena(function, ALIGNMENT)
    start = time.perf_counter()
    starts = Starts.of(function, [function.ops, given], COSTS, ALIGNMENT)
    choices = starts.choices(int(SPARE * share * arena))
    return choices, arena, starts.bound, time.perf_counter() - start


def row(name: str, arguments: argparse.Namespace) -> tuple[str, list[float | None], float]:
    """A table row, the added cost in percent at each of SHARES (None if it is not reached), and the seconds."""
    module = prepared(name, arguments.batch, arguments)
    ops = len(module.main.ops)
    choices, arena, bound, seconds = choices_of(module, SHARES[-1])
    before = Snapshot.of(module, module.main)
    cells, added = [], []
    for share in SHARES:
        budget = int(share * arena)
        cell, cost = "not reached" if bound <= budget else "impossible", None
        for choice in choices.fitting(budget):
            found = choices.follow(choice, arena)
            before.restore()
            if found.arena <= budget:
                cell, cost = f"{100 * found.added:.2f} ({100 * found.arena / arena:.1f})", 100 * found.added
                break
        cells.append(cell)
        added.append(cost)
    least = choices.least().plan.peak / arena
    shown = " | ".join(cells)
    text = f"| {name} | {ops} | {format_size(arena)} | {shown} | {100 * least:.1f} | {100 * bound / arena:.1f} | {seconds:.1f} |"
    return text, added, seconds


def sweep(name: str, arguments: argparse.Namespace) -> str:
    """The peaks at evenly spaced budgets, each planned to the end and checked."""
    module = prepared(name, arguments.batch, arguments)
    choices, arena, *_ = choices_of(module, SHARES[-1])
    before = Snapshot.of(module, module.main)
    peaks: list[float] = []
    for step in range(arguments.sweep):
        budget = int(arena * (1 - (1 - SHARES[-1]) * step / max(1, arguments.sweep - 1)))
        for choice in choices.fitting(budget):
            found = choices.follow(choice, arena)
            if found.arena <= budget:
                verify(module)
                peaks.append(found.arena / arena)
                if len(peaks) > 1 and peaks[-1] > peaks[-2]:
                    raise SystemExit(
                        f"{name}: the peak rose from {peaks[-2]} to {peaks[-1]} at a budget of {budget} bytes"
                    )
                break
            before.restore()
        before.restore()
    return f"| {name} | {len(peaks)} | {' '.join(f'{100 * p:.1f}' for p in peaks)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--only", nargs="*", default=training_steps.NAMES)
    parser.add_argument("--sweep", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.sweep:
        print("| model | budgets met | peaks, % of the arena without recomputation |\n| --- | --: | --- |")
        for name in arguments.only:
            print(sweep(name, arguments), flush=True)
        return
    heads = " | ".join(f"added % at {100 * share:.0f} % (peak %)" for share in SHARES)
    print(f"| model | ops | arena | {heads} | least % | bound % | planning s |")
    print("| --- | --: | --: |" + " --: |" * (len(SHARES) + 3))
    rows = []
    for name in arguments.only:
        rows.append(row(name, arguments))
        print(rows[-1][0], flush=True)
    for index, share in enumerate(SHARES):
        met = [cost for _, added, _ in rows if (cost := added[index]) is not None]
        if met:
            print(
                f"\n{100 * share:.0f} %: met by {len(met)} of {len(rows)}, {statistics.mean(met):.2f} % added in the mean."
            )
    seconds = [s for _, _, s in rows]
    print(f"\nPlanning: {statistics.median(seconds):.1f} s in the median, {max(seconds):.1f} s at most.")


if __name__ == "__main__":
    main()
