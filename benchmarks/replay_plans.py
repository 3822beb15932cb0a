# SPDX-License-Identifier: Apache-2.0
"""Plans for replay: arenas beside their lower bounds by solver, and what PyTorch's allocator reserves with and without them.

    python benchmarks/replay_plans.py --traces DIR [--mip SECONDS]
    python benchmarks/replay_plans.py --events DIR
    python benchmarks/replay_plans.py --jobs --python PYTHON [--keep FILE]

Traces (`id,lower,upper,size`) are of one training step each; what is reserved natively for them is by memc's simulation of the
allocator, for three such steps in a row. Events are recordings of whole jobs. Jobs run on the phantom device: the measured ones of
`estimate_jobs.py`, and the 42 configurations of training with SGD that are named below; results are kept in FILE (JSON lines), and
a job that is there is not run again.

"fragmentation" is what is reserved beyond the bytes live at the peak, in blocks of 512 bytes; "removed" is the part of it that is gone
with the plan. A job with its plan is the hot step in a fresh process: what lives longer than a step, by the allocator, then the
arena, then the step; "compact": what lives longer in one block, too. Solvers' peaks are in percent above the bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from memc.estimation.alloc_conf import parse_alloc_conf
from memc.estimation.event_files import read_json, read_trace
from memc.estimation.events import EventList, Events
from memc.estimation.gpus import DEFAULT, gpu_named
from memc.estimation.phantom import Process, Script, run_in
from memc.estimation.recording import Recording
from memc.estimation.replay import Job
from memc.estimation.step_plans import arena_events, reserved_with
from memc.estimation.steps import HotStep, hot_step, step_of
from memc.ir.errors import MemcError
from memc.replay import NATIVE, ReplayPlan, WatchedStep, make_plan

HERE = Path(__file__).parent
MODELS = (
    *("alexnet", "bert_base", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "lstm", "mobilenet_v2"),
    *("resnet18", "resnet50", "resnet152", "unet", "vgg16", "vit_b_16"),
)
BATCHES = (1, 32, 128)
MEASURED = ("requested", "allocated", "reserved", "nvml", "error")


def percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def live_peak(events: Events) -> int:
    """Bytes of the largest live set, in blocks of 512."""
    rounded = -(-events.nbytes // 512) * 512
    return int(Events(events.kinds, events.blocks, rounded, *([events.streams] * 3)).live_after().max(initial=0))


def by_solver(step: WatchedStep, solvers: Sequence[str], mip: float) -> dict[str, ReplayPlan]:
    return {name: make_plan(step, solver=name, time_limit=mip if name == "mip" else None) for name in solvers}


def plan_cells(plans: dict[str, ReplayPlan]) -> list[str]:
    """Requests, blocks with a place, cyclic ones, arena and bound of the first plan, then percent above the bound and seconds of each."""
    first = next(iter(plans.values()))
    cells = [f"{len(first):,}", f"{int(first.planned.sum()):,}", f"{int(first.cyclic.sum()):,}"]
    cells += [f"{first.arena_bytes:,}", f"{first.lower_bound:,}"]
    return cells + [f"{plan.gap_percent:.2f} in {plan.seconds:.2f} s" for plan in plans.values()]


def three_times(events: Events) -> Events:
    """The same step, three times in a row."""
    found = EventList()
    for _ in range(3):
        blocks: dict[int, int] = {}
        for block, nbytes, made in zip(events.blocks.tolist(), events.nbytes.tolist(), events.makes.tolist()):
            if made:
                blocks[block] = found.allocate(nbytes)
            else:
                found.free(blocks[block])
    return found.events()


def header(columns: Sequence[str]) -> None:
    print("| " + " | ".join(columns) + " |")
    print("| --- |" + " --: |" * (len(columns) - 1))


SAVED = ("live", "natively", "with the plan", "%", "removed, %", "compact", "%", "removed, %")


class Saved:
    """What plans save: bytes reserved, and the share of fragmentation that is gone, over all rows."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.less: dict[str, list[float]] = {"reserved": [], "compact": []}
        self.removed: dict[str, list[float]] = {"reserved": [], "compact": []}

    def cells(self, gap: float, row: dict[str, int]) -> list[str]:
        """Of a row, which is counted."""
        self.gaps.append(gap)
        native, live = row["native"], row["live"]
        cells = [f"{live:,}", f"{native:,}"]
        for name in ("reserved", "compact"):
            less = percent(row[name] - native, native)
            self.less[name].append(less)
            cells += [f"{row[name]:,}", f"{less:+.1f}"]
            if native > live:
                self.removed[name].append(percent(native - row[name], native - live))
                cells.append(f"{self.removed[name][-1]:.1f}")
            else:
                cells.append("")
        return cells

    def tell(self, what: str) -> None:
        """The summary."""
        met = sum(gap == 0 for gap in self.gaps)
        print(f"\n{len(self.gaps)} {what}: {met} at the lower bound, the worst {max(self.gaps):.3f} % above.\n")
        print("| | reserved, mean % | least | most | fragmentation removed, mean % | median | least |")
        print("| --- |" + " --: |" * 6)
        for name, title in (("reserved", "with the plan"), ("compact", "compact, too")):
            less, gone = self.less[name], self.removed[name]
            cells = [f"{statistics.mean(less):+.1f}", f"{max(less):+.1f}", f"{min(less):+.1f}"]
            cells += [f"{statistics.mean(gone):.1f}", f"{statistics.median(gone):.1f}", f"{min(gone):.1f}"]
            print(f"| {title} | " + " | ".join(cells) + " |")


def traces(folder: Path, mip: float) -> None:
    solvers = ["auto", "best-fit"] + (["mip"] if mip else [])
    header(["trace", "requests", "placed", "cyclic", "arena", "lower bound", *solvers, *SAVED])
    saved = Saved()
    for path in sorted(folder.glob("*.csv")):
        events = read_trace(path).events
        plans = by_solver(step_of(events, np.flatnonzero(events.makes)), solvers, mip)
        arena = EventList()
        arena.allocate(plans["auto"].arena_bytes)
        native, planned = (native_peak(each) for each in (three_times(events), arena.events()))
        row = {"live": live_peak(events), "native": native, "reserved": planned, "compact": planned}
        cells = [path.stem, *plan_cells(plans), *saved.cells(plans["auto"].gap_percent, row)]
        print("| " + " | ".join(cells) + " |", flush=True)
    saved.tell("traces")


def native_peak(events: Events) -> int:
    """Bytes that PyTorch's allocator reserves."""
    return Job("events", Recording(events), DEFAULT, True, None).simulate(parse_alloc_conf("")).reserved.peak


def whole(events: Events) -> WatchedStep:
    """All of a job as if it were one step."""
    return step_of(events, np.flatnonzero(events.makes))


def recordings(folder: Path) -> None:
    header(["recording", "requests", "placed", "cyclic", "arena", "lower bound", "auto", "best-fit", *SAVED])
    saved = Saved()
    for path in sorted(folder.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        job = Job(name, read_json(path), DEFAULT, True, None)
        plans = by_solver(whole(job.events), ["auto", "best-fit"], 0)
        print("| " + " | ".join([f"{name}, all of it", *plan_cells(plans), *[""] * len(SAVED)]) + " |", flush=True)
        try:
            hot = hot_step(job.events, name)
        except MemcError as error:
            print(f"| {error} |" + " |" * (7 + len(SAVED)))
            continue
        plans = by_solver(hot.watched, ["auto", "best-fit"], 0)
        cells = saved.cells(plans["auto"].gap_percent, reserved(job, hot, plans["auto"]))
        print("| " + " | ".join([f"{name}, a step", *plan_cells(plans), *cells]) + " |", flush=True)
    saved.tell("steps")


def reserved(job: Job, hot: HotStep, plan: ReplayPlan) -> dict[str, int]:
    """With the plan, with all that lives longer than a step in one block besides, without a plan, and the bytes live in the step."""
    found = reserved_with(job, parse_alloc_conf(job.recording.alloc_conf), hot, plan)
    nothing = replace(plan, offsets=np.full(len(plan), NATIVE, np.int64), arena_bytes=0)
    live = live_peak(arena_events(job.events, hot, nothing))
    return {"reserved": found.planned, "compact": found.compact, "native": found.native, "live": live}


def all_jobs() -> Iterator[dict[str, Any]]:
    for model in MODELS:
        for batch in BATCHES:
            yield {"model": model, "batch": batch, "optimizer": "sgd", "precision": "fp32", "mode": "train"}
    yield from json.loads((HERE / "data/pytorch_h200_jobs.json").read_text())["jobs"]


def run(job: dict[str, Any], process: Process) -> dict[str, Any]:
    """The figures of a job's plan, or why there is none."""
    asked = json.dumps({key: value for key, value in job.items() if key not in MEASURED})
    steps = 4 if job["mode"] == "train" else 0
    try:
        script = Script(str(HERE / "estimate_job.py"), [asked], steps, alloc_conf=job.get("alloc"), seconds=900)
        return figures(run_in(process, script))
    except MemcError as error:
        return {"error": str(error)}


def figures(recording: Recording) -> dict[str, Any]:
    """Of the hot step's plan. Raises InvalidError without one."""
    found = Job("job", recording, gpu_named("h200"), True, None)
    hot = hot_step(found.events, "job")
    plans = by_solver(hot.watched, ["auto", "best-fit"], 0)
    plan = plans["auto"]
    return {
        "requests": len(plan),
        "placed": int(plan.planned.sum()),
        "cyclic": int(plan.cyclic.sum()),
        "arena": plan.arena_bytes,
        "bound": plan.lower_bound,
        "gap": plan.gap_percent,
        "seconds": round(plan.seconds, 3),
        "best_fit": plans["best-fit"].gap_percent,
        **reserved(found, hot, plan),
    }


def jobs_table(rows: Sequence[dict[str, Any]]) -> None:
    header(["job", "requests", "placed", "cyclic", "arena", "% above", "best-fit", "seconds", *SAVED])
    saved = Saved()
    for row in rows:
        if "error" in row:
            print(f"| {row['job']} | {row['error']} |" + " |" * (6 + len(SAVED)))
            continue
        numbers = [f"{row[name]:,}" for name in ("requests", "placed", "cyclic", "arena")]
        numbers += [f"{row['gap']:.2f}", f"{row['best_fit']:.2f}", f"{row['seconds']:.2f}"]
        print("| " + " | ".join([row["job"], *numbers, *saved.cells(row["gap"], row)]) + " |")
    saved.tell("jobs")


def jobs(python: str, keep: Path | None) -> None:
    kept: dict[str, dict[str, Any]] = {}
    if keep and keep.exists():
        kept = {row["job"]: row for row in map(json.loads, keep.read_text().splitlines())}
    rows = []
    with Process(python, gpu_named("h200")) as process:
        for job in all_jobs():
            name = ", ".join(str(value) for key, value in job.items() if key not in MEASURED and value is not None)
            if name not in kept:
                kept[name] = {"job": name} | run(job, process)
                if keep:
                    with open(keep, "a") as file:
                        file.write(json.dumps(kept[name]) + "\n")
            rows.append(kept[name])
    count = len(MODELS) * len(BATCHES)
    jobs_table(rows[:count])
    print()
    jobs_table(rows[count:])


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--events", type=Path)
    parser.add_argument("--jobs", action="store_true")
    parser.add_argument(
        "--mip", type=float, default=0.0, metavar="SECONDS", help="with --traces: the integer program, too"
    )
    parser.add_argument("--python")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.traces:
        traces(options.traces, options.mip)
    if options.events:
        recordings(options.events)
    if options.jobs:
        jobs(options.python, options.keep)


if __name__ == "__main__":
    main()
