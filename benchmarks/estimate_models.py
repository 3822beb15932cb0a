# SPDX-License-Identifier: Apache-2.0
"""`memc estimate` of training and inference jobs from their ONNX models, beside what PyTorch 2.11 took on an H200.

    python benchmarks/estimate_models.py MODELS

MODELS is a folder of training exports with an open `batch` (MODEL.onnx; weights may be absent). The measured jobs are in
`data/pytorch_h200_jobs.json`: each in a process of its own, five steps, peaks of requested, allocated and reserved bytes, and what the
device gave (NVML). Errors are in percent of the measured figure; "under" is the lowest. Jobs whose model is not in the folder, or
differs from the job's (GoogLeNet and Inception have auxiliary classifiers in training, which their exports lack; AlexNet and VGG lack
their dropout, which is small), are told apart.
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
OTHER_MODELS = {"googlenet", "inception_v3", "unet"}


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
        alloc_conf=job.get("alloc"),
        alternatives=False,
    )


def main() -> None:
    """Print the table and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path)
    options = parser.parse_args()
    jobs = json.loads(JOBS.read_text())
    print(f"{jobs['about']}\n")
    print("| model | batch | optimizer | how | " + " | ".join(FIGURES) + " | seconds |")
    print("| --- | --: | --- | --- |" + " --: |" * (len(FIGURES) + 1))
    errors: list[list[float]] = []
    seconds: list[float] = []
    left_out: dict[str, str] = {}
    for job in jobs["jobs"]:
        model = job["model"]
        if model in OTHER_MODELS or not (options.models / f"{model}.onnx").is_file():
            left_out[model] = "another model, or none"
            continue
        begin = time.process_time()
        try:
            found = estimated(options.models, job)
        except MemcError as error:
            left_out[model] = str(error).split(": ", 1)[-1][:80]
            continue
        seconds.append(time.process_time() - begin)
        mine = [found.requested_bytes, found.allocated_bytes, found.reserved_bytes, found.device_bytes]
        theirs = [job["requested"], job["allocated"], job["reserved"], job["nvml"]]
        row = [100 * (a / b - 1) if b else float("nan") for a, b in zip(mine, theirs)]
        errors.append(row)
        how = [
            job["precision"] if job["precision"] != "fp32" else "",
            job.get("alloc", ""),
            "zero at end" if "zero" in job else "",
        ]
        cells = [
            model,
            job["batch"],
            job["optimizer"] if job["mode"] == "train" else "inference",
            ", ".join(filter(None, how)),
        ]
        shown = " | ".join(f"{value:+.2f}" for value in row)
        print(f"| {' | '.join(map(str, cells))} | {shown} | {seconds[-1]:.2f} |", flush=True)
    print(f"\n{len(errors)} jobs. Processor time: {statistics.median(seconds):.2f} s in the median.\n")
    print("| error, % | median | worst | under |\n| --- | --: | --: | --: |")
    for at, name in enumerate(FIGURES):
        values = [row[at] for row in errors if row[at] == row[at]]
        sizes = [abs(value) for value in values]
        print(f"| {name} | {statistics.median(sizes):.2f} | {max(sizes):.2f} | {min(values):+.2f} |")
    for model, why in sorted(left_out.items()):
        print(f"\nLeft out: {model}: {why}")


if __name__ == "__main__":
    main()
