# SPDX-License-Identifier: Apache-2.0
"""`memc estimate` of models that its rules were not written on, from ONNX, beside PyTorch 2.11 itself on the phantom device.

    PYTHON benchmarks/estimate_exports.py MODELS NAME ...
    python benchmarks/estimate_held_out.py MODELS --python PYTHON [--keep FILE]

MODELS has exports of the models in FIRST and LATER; PYTHON is an interpreter with torch 2.11.0 and torchvision. No GPU is needed. What the phantom
device takes for these jobs is what a GPU would, but for convolutions on tensor cores (`results/estimate_jobs.md`). Errors are in percent
of its figures. Its figures are kept in FILE, and a job that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from estimate_jobs import run
from estimate_models import estimated

from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Process
from memc.ir.errors import MemcError

FIRST = (
    *(
        "resnet34",
        "wide_resnet50_2",
        "squeezenet1_1",
        "vgg11",
        "mnasnet1_0",
        "mobilenet_v3_small",
        "mobilenet_v3_large",
    ),
    *("regnet_y_400mf", "regnet_x_800mf", "convnext_tiny", "swin_t", "vit_b_32", "densenet169", "efficientnet_v2_s"),
)
"""Models that were tried first; rules were mended after that."""
LATER = ("resnet101", "vgg13_bn", "shufflenet_v2_x1_5", "efficientnet_b2", "regnet_y_800mf", "convnext_small")
"""Models that were tried when all rules were there, and for which none was changed."""
KINDS = (
    {"batch": 1, "optimizer": "sgd"},
    {"batch": 2, "optimizer": "adam"},
    {"batch": 3, "optimizer": "adamw_fused"},
    {"batch": 7, "optimizer": "momentum"},
    {"batch": 16, "optimizer": "adam", "precision": "bf16_amp"},
    {"batch": 16, "optimizer": "rmsprop"},
    {"batch": 16, "mode": "infer"},
)
FIGURES = ("requested", "allocated", "reserved")


def jobs() -> list[dict[str, Any]]:
    """Of each model, several kinds of jobs, so that each kind is there with half of the models."""
    plain = {"optimizer": "adam", "precision": "fp32", "mode": "train"}
    pairs = [(at, name, number) for at, name in enumerate((*FIRST, *LATER)) for number in range(len(KINDS))]
    return [plain | {"model": name} | KINDS[number] for at, name, number in pairs if (at + number) % 2 == 0]


def summary(title: str, rows: list[list[float]]) -> None:
    """Median, worst and lowest of each figure."""
    print(f"\n{title}: {len(rows)} jobs.\n\n| error, % | median | worst | under |\n| --- | --: | --: | --: |")
    for at, name in enumerate(FIGURES):
        sizes = [abs(row[at]) for row in rows] or [0.0]
        lowest = min((row[at] for row in rows), default=0.0)
        print(f"| {name} | {statistics.median(sizes):.2f} | {max(sizes):.2f} | {lowest:+.2f} |")


def main() -> None:
    """Print the table and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    kept: dict[str, dict[str, Any]] = {}
    if options.keep and options.keep.exists():
        kept = json.loads(options.keep.read_text())
    print(
        "| model | batch | optimizer | precision | "
        + " | ".join(FIGURES)
        + " |\n| --- | --: | --- | --- |"
        + " --: |" * 3
    )
    errors: dict[bool, list[list[float]]] = {True: [], False: []}
    with Process(options.python, gpu_named("h200")) as process:
        for job in jobs():
            key = json.dumps(job)
            if key not in kept:
                kept[key] = run(job, process)
                if options.keep:
                    options.keep.write_text(json.dumps(kept))
            cells = [
                job["model"],
                str(job["batch"]),
                job["optimizer"] if job["mode"] == "train" else "inference",
                job["precision"],
            ]
            truth = kept[key]
            try:
                found = estimated(options.models, job)
            except MemcError as error:
                print(f"| {' | '.join(cells)} | {str(error).split(': ', 1)[-1][:100]} | | |", flush=True)
                continue
            mine = (found.requested_bytes, found.allocated_bytes, found.reserved_bytes)
            row = [100 * (a / truth[name] - 1) for a, name in zip(mine, FIGURES)]
            errors[job["model"] in FIRST].append(row)
            print(f"| {' | '.join(cells)} | " + " | ".join(f"{value:+.2f}" for value in row) + " |", flush=True)
    for first, title in ((True, "Tried first"), (False, "Tried when all rules were there")):
        summary(title, errors[first])


if __name__ == "__main__":
    main()
