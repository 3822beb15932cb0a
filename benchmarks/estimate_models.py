# SPDX-License-Identifier: Apache-2.0
"""`memc estimate` of training and inference jobs from their ONNX models, beside what PyTorch 2.11 took on an H200.

    python benchmarks/estimate_exports.py MODELS
    python benchmarks/estimate_models.py MODELS

The measured jobs are in `data/pytorch_h200_jobs.json`: each in a process of its own, five steps, peaks of requested, allocated and
reserved bytes, and what the device gave (NVML). Errors are in percent of the measured figure; "under" is the lowest. Models that
no rule was written on are in `estimate_held_out.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from memc.estimation import Estimate, estimate
from memc.ir.errors import MemcError

JOBS = Path(__file__).parent / "data/pytorch_h200_jobs.json"
FIGURES = ("requested", "allocated", "reserved", "device")
PRECISIONS = {"fp32": "f32", "tf32": "f32", "bf16": "bf16", "bf16_amp": "amp-bf16", "fp16_amp": "amp-f16"}
BLOCKS = {"bert_base": "m.bert.encoder.layer.*", "gpt2": "m.transformer.h.*"}
"""The modules that transformers checkpoints."""


def reason(job: dict[str, Any], folder: Path) -> str | None:
    """Why a job is not estimated from its model."""
    if not (folder / f"{job['model']}.onnx").is_file():
        return "its model is not in the folder"
    return None


def estimated(folder: Path, job: dict[str, Any]) -> Estimate:
    """Raises MemcError where the model of the framework lacks an op."""
    train = job["mode"] == "train"
    return estimate(
        folder / f"{job['model']}.onnx",
        gpu="h200",
        train=train,
        optimizer=job["optimizer"].replace("_", "-") if train else None,
        dims={"batch": job["batch"]},
        tf32=job["precision"] == "tf32",
        zero_grad=job.get("zero", "first"),
        precision=PRECISIONS[job["precision"]],
        accumulate=job.get("accumulate", 1),
        checkpoint=BLOCKS[job["model"]] if job.get("checkpoint") else None,
        channels_last=job.get("channels_last", False),
        cudnn_benchmark=job.get("benchmark", False),
        alloc_conf=job.get("alloc"),
        alternatives=False,
    )


def described(job: dict[str, Any]) -> list[str]:
    """Cells of the table."""
    how = [
        job["precision"] if job["precision"] != "fp32" else "",
        job.get("alloc", ""),
        "zero at end" if "zero" in job else "",
        f"{job['accumulate']} batches" if "accumulate" in job else "",
        "checkpointing" if job.get("checkpoint") else "",
        "channels last" if job.get("channels_last") else "",
        "cudnn.benchmark" if job.get("benchmark") else "",
    ]
    optimizer = job["optimizer"] if job["mode"] == "train" else "inference"
    return [job["model"], str(job["batch"]), optimizer, ", ".join(filter(None, how))]


def row_of(found: Estimate, job: dict[str, Any]) -> list[float]:
    """Errors in percent; not a number where nothing was measured."""
    mine = [found.requested_bytes, found.allocated_bytes, found.reserved_bytes, found.device_bytes]
    theirs = [job.get(name) for name in ("requested", "allocated", "reserved", "nvml")]
    return [100 * (a / b - 1) if b else float("nan") for a, b in zip(mine, theirs)]


def summary(title: str, rows: list[list[float]]) -> None:
    """Median, worst and lowest of each figure."""
    print(f"\n{title}: {len(rows)} jobs.\n\n| error, % | median | worst | under |\n| --- | --: | --: | --: |")
    for at, name in enumerate(FIGURES):
        values = [row[at] for row in rows if row[at] == row[at]]
        sizes = [abs(value) for value in values]
        print(f"| {name} | {statistics.median(sizes):.2f} | {max(sizes):.2f} | {min(values):+.2f} |")


def main() -> None:
    """Print the table and summaries."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path)
    options = parser.parse_args()
    jobs = json.loads(JOBS.read_text())
    print(f"{jobs['about']}\n")
    print("| model | batch | optimizer | how | " + " | ".join(FIGURES) + " | seconds |")
    print("| --- | --: | --- | --- |" + " --: |" * (len(FIGURES) + 1))
    errors: list[list[float]] = []
    seconds: list[float] = []
    for job in jobs["jobs"]:
        cells = " | ".join(described(job))
        begin = time.process_time()
        why = reason(job, options.models)
        try:
            found = None if why else estimated(options.models, job)
        except MemcError as error:
            found, why = None, str(error).split(": ", 1)[-1][:80]
        if found is None:
            print(f"| {cells} | not covered: {why} |  |  |  |  |")
            continue
        seconds.append(time.process_time() - begin)
        row = row_of(found, job)
        errors.append(row)
        shown = " | ".join(f"{value:+.2f}" if value == value else "" for value in row)
        print(f"| {cells} | {shown} | {seconds[-1]:.2f} |", flush=True)
    print(f"\nProcessor time: {statistics.median(seconds):.2f} s in the median, {max(seconds):.2f} s at most.")
    summary("All", errors)


if __name__ == "__main__":
    main()
