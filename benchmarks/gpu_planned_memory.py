# SPDX-License-Identifier: Apache-2.0
"""Training steps of PyTorch's with planned memory on a GPU, beside PyTorch's own allocators.

    python benchmarks/gpu_planned_memory.py run OUT [--seconds 340] [--jobs 10] [--parts memory,times,bits,cost] [--models A,B]
    python benchmarks/gpu_planned_memory.py table OUT

`memory`: peak reserved and live bytes of steady steps of 15 networks, trained with SGD and momentum at batch 1, 32 and 128, with PyTorch's
allocator (`native`), `expandable_segments`, `cudaMallocAsync`, `planned` and `ahead` (with a plan from a file, from the first step on; the
peak is then that of the whole process). `times`: milliseconds a step, one process at a time. `bits`: losses of 200 steps and all weights
after them, as digests. `cost`: nanoseconds of a `torch.empty` and its free in a step of 2,000 of them.

Each row is a process of its own (`gpu_planned_job.py`); rows are kept in OUT/rows.jsonl as they come, and one that is there is not run again. It needs torch,
torchvision and transformers. Where memc is not installed, the repository's tree is enough, with tvm_ffi on the path, libmemc_core.so named by
MEMC_CORE, and, without a C++ compiler, libmemc_torch.so by MEMC_TORCH_ALLOCATOR.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODELS = (
    *("resnet50", "vgg16", "densenet121", "bert_base", "efficientnet_b0", "vit_b_16", "gpt2", "lstm"),
    *("googlenet", "inception_v3", "mobilenet_v2", "resnet18", "resnet152", "alexnet", "unet"),
)
BATCHES = (32, 128, 1)
SETTINGS = {
    "native": "",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
    "planned": "",
    "ahead": "",
}
GIB_OF = {1: 3, 32: 10, 128: 33}
"""What a process may take, so that those side by side fit."""


def rows_of(parts: list[str], models: list[str], folder: Path) -> Iterator[dict[str, Any]]:
    """All rows, the most telling first."""
    plan = lambda model, batch: str(folder / f"{model}.{batch}.plan.json")  # noqa: E731
    if "times" in parts:
        for model, batch in (("resnet50", 1), ("bert_base", 1), ("resnet50", 32), ("lstm", 32)):
            for mode in ("native", "planned", "expandable", "async"):
                if model in models and (mode in ("native", "planned") or (model, batch) == ("resnet50", 1)):
                    yield {
                        "part": "times",
                        "model": model,
                        "batch": batch,
                        "mode": mode,
                        "steps": 100 if batch == 1 else 60,
                    }
    if "cost" in parts:
        for mode in ("native", "planned", "expandable", "async"):
            yield {"part": "cost", "model": "empty", "batch": 1, "mode": mode}
    if "bits" in parts:
        for model, batch in (("resnet18", 32), ("bert_base", 8), ("gpt2", 4)):
            for mode in ("native", "planned", "native again"):
                if model in models:
                    yield {"part": "bits", "model": model, "batch": batch, "mode": mode, "steps": 200}
    if "memory" in parts:
        for batch in BATCHES:
            for model in models:
                for mode in ("planned", "native"):
                    yield {"part": "memory", "model": model, "batch": batch, "mode": mode, "plan": plan(model, batch)}
    if "memory" in parts:
        for batch in BATCHES:
            for model in models:
                for mode in ("ahead", "expandable", "async"):
                    yield {"part": "memory", "model": model, "batch": batch, "mode": mode, "plan": plan(model, batch)}


def name_of(row: dict[str, Any]) -> str:
    return f"{row['part']} {row['model']} {row['batch']} {row['mode']}"


def start(row: dict[str, Any]) -> subprocess.Popen[str]:
    environment = (
        dict(os.environ) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if row["part"] == "bits" else dict(os.environ)
    )
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if setting := SETTINGS.get(row["mode"]):
        environment["PYTORCH_CUDA_ALLOC_CONF"] = setting
    command = [sys.executable, str(Path(__file__).resolve().parent / "gpu_planned_job.py"), json.dumps(row)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(options: argparse.Namespace) -> None:
    """Run what is not there, some side by side as far as their memory allows; times and costs alone."""
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    rows_path = folder / "rows.jsonl"
    known = {name_of(row) for row in kept(folder)}
    waiting = [row for row in rows_of(options.parts, options.models, folder) if name_of(row) not in known]
    running: list[tuple[dict[str, Any], subprocess.Popen[str], float]] = []
    end = time.monotonic() + options.seconds
    while waiting or running:
        for each in list(running):
            row, process, began = each
            took = time.monotonic() - began
            if process.poll() is None and took < options.limit and time.monotonic() < end:
                continue
            process.kill()
            text, errors = process.communicate()
            running.remove(each)
            lines = [line for line in text.splitlines() if line.startswith("{")]
            last = (errors.strip().splitlines() or ["no output"])[-1][:400]
            result = json.loads(lines[-1]) if lines and process.returncode == 0 else row | {"error": last}
            with open(rows_path, "a") as file:
                file.write(json.dumps(result | {"seconds": round(took, 1)}) + "\n")
            print(f"{name_of(row)}: {result.get('error', 'done')} ({took:.0f} s)", flush=True)
        while waiting and time.monotonic() < end and may_start(waiting[0], [each[0] for each in running], options.jobs):
            row = waiting.pop(0)
            running.append((row, start(row), time.monotonic()))
        if time.monotonic() >= end:
            waiting.clear()
        time.sleep(0.05)
    table(folder)


def may_start(row: dict[str, Any], running: list[dict[str, Any]], jobs: int) -> bool:
    alone = {"times", "cost"}
    if row["part"] in alone or any(each["part"] in alone for each in running):
        return not running
    waits = row["mode"] == "ahead" and any(
        each.get("plan") == row["plan"] and each["mode"] == "planned" for each in running
    )
    taken = sum(GIB_OF.get(each["batch"], 8) for each in running)
    return not waits and len(running) < jobs and taken + GIB_OF.get(row["batch"], 8) <= 132


def kept(folder: Path) -> list[dict[str, Any]]:
    path = folder / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def table(folder: Path) -> None:
    """Print what is kept."""
    rows = {name_of(row): row for row in kept(folder)}
    print(
        "\n| model | batch | live | native | expandable | async | planned | ahead | fragmentation native / planned | hits | fall-backs |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    changes, fragments = [], []
    for model in MODELS:
        for batch in sorted(BATCHES):
            of = {mode: rows.get(f"memory {model} {batch} {mode}", {}) for mode in SETTINGS}
            native, planned = of["native"], of["planned"]
            if "reserved" not in native or "reserved" not in planned:
                if any(of.values()):
                    print(f"| {model} | {batch} | {[each.get('error') for each in of.values()]}")
                continue
            shares = [1 - each["allocated"] / each["reserved"] for each in (native, planned)]
            fragments.append(shares)
            changes.append(planned["reserved"] / native["reserved"] - 1)
            cells = [f"{native['allocated'] / 1e6:,.1f}", f"{native['reserved'] / 1e6:,.1f}"]
            cells += [
                f"{100 * (of[mode]['reserved'] / native['reserved'] - 1):+.1f} %" if of[mode].get("reserved") else ""
                for mode in ("expandable", "async", "planned")
            ]
            ahead = of["ahead"].get("reserved_before")
            cells.append(
                f"{100 * (max(ahead, of['ahead']['reserved']) / native['reserved_before'] - 1):+.1f} %" if ahead else ""
            )
            report = planned["report"]
            fallbacks = sum(each["count"] for each in report["fallbacks"].values())
            cells += [
                f"{100 * shares[0]:.1f} / {100 * shares[1]:.1f} %",
                f"{report['hits']:,} of {report['requests']:,}",
                str(fallbacks),
            ]
            print(f"| {model} | {batch} | {' | '.join(cells)} |")
    if changes:
        means = [100 * statistics.mean(column) for column in zip(*fragments)]
        print(
            f"\n{len(changes)} rows: reserved {100 * statistics.mean(changes):+.1f} % mean, {100 * max(changes):+.1f} % at the most; "
            f"fragmentation {means[0]:.2f} % native, {means[1]:.2f} % planned"
        )
    for row in rows.values():
        shown = {
            key: row[key] for key in ("host", "whole", "losses", "weights", "last_loss", "ns", "error") if key in row
        }
        if row["part"] != "memory":
            print(
                name_of(row),
                {key: round(value, 4) if isinstance(value, float) else value for key, value in shown.items()},
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("run")
    first.add_argument("out", type=Path)
    first.add_argument("--seconds", type=float, default=340)
    first.add_argument("--limit", type=float, default=75, help="seconds of one row")
    first.add_argument("--jobs", type=int, default=10)
    first.add_argument("--parts", type=lambda text: text.split(","), default=["memory", "times", "bits", "cost"])
    first.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    first.set_defaults(verb=run)
    second = verbs.add_parser("table")
    second.add_argument("out", type=Path)
    second.set_defaults(verb=lambda options: table(options.out))
    options = parser.parse_args()
    options.verb(options)


if __name__ == "__main__":
    main()
