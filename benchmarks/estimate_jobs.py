# SPDX-License-Identifier: Apache-2.0
"""`memc estimate` of PyTorch jobs on the phantom device, beside what they took on an H200.

    python benchmarks/estimate_jobs.py --python PYTHON [--keep FILE] [--jobs 0-118] [--table]

PYTHON is an interpreter with torch 2.11.0, torchvision 0.26.0 and transformers (`scripts/phantom_env.sh` makes one). No GPU is needed.
The measured jobs are in `data/pytorch_h200_jobs.json`: each ran in a process of its own, five steps. `estimate_job.py` is the script
that is estimated, in a process of its own, too; seconds are with loading PyTorch in it. Results are kept in FILE (JSON lines) as they come, and a job that is there is not run again.

Figures are the differences from what was measured, in bytes; "device" is in percent of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from memc.estimation import estimate
from memc.estimation.alloc_conf import parse_alloc_conf
from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Process, Script, run_readings
from memc.estimation.replay import Job
from memc.ir.errors import MemcError

HERE = Path(__file__).parent
FIGURES = ("requested", "allocated", "reserved")
MEASURED = (*FIGURES, "nvml", "error")


def run(job: dict[str, Any], process: Process) -> dict[str, Any]:
    """The estimate's figures, or its error."""
    asked = json.dumps({key: value for key, value in job.items() if key not in MEASURED})
    steps = 5 if job["mode"] == "train" else 0
    begin = time.perf_counter()
    try:
        script = Script(str(HERE / "estimate_job.py"), [asked], steps, alloc_conf=job.get("alloc"), seconds=900)
        readings = run_readings(process, script)
        seconds = time.perf_counter() - begin
        estimates = [
            (each.recording, estimate(each.recording, gpu="h200", alternatives=False))
            for each in readings
            if not each.bound
        ]
        recording, found = max(estimates, key=lambda each: each[1].reserved_bytes)
    except MemcError as error:
        return {"error": str(error)}
    simulated = Job("job", recording, gpu_named("h200"), True, None).simulate(
        parse_alloc_conf(recording.alloc_conf), segment_addresses=recording.segment_addresses(gpu_named("h200").total)
    )
    return {
        "requested": found.requested_bytes,
        "allocated": found.allocated_bytes,
        "reserved": found.reserved_bytes,
        "recorded": dict(found.recorded),
        "device": simulated.device.current + (recording.outside or 0),
        "confidence": found.confidence,
        "assumed": found.assumed,
        "peak_op": found.peak_op,
        "events": len(recording.events),
        "seconds": round(seconds, 2),
    }


def how(job: dict[str, Any]) -> str:
    """What is particular about a job."""
    plain = ("model", "batch", "optimizer", "mode", "precision", *MEASURED)
    said = [job["precision"]] if job["precision"] != "fp32" else []
    if job["mode"] != "train":
        said.append("inference")
    return ", ".join(
        said + [f"{key} {value}" if value is not True else key for key, value in job.items() if key not in plain]
    )


def table(jobs: list[dict[str, Any]], found: dict[int, dict[str, Any]]) -> None:
    """Print a row for each job, and a summary."""
    print("| model | batch | optimizer | how | " + " | ".join(FIGURES) + " | device, % | confidence | seconds |")
    print("| --- | --: | --- | --- |" + " --: |" * len(FIGURES) + " --: | --- | --: |")
    errors: dict[str, list[float]] = {name: [] for name in (*FIGURES, "device")}
    exact = 0
    for number, job in enumerate(jobs):
        if number not in found or "error" in job:
            continue
        mine = found[number]
        cells = [job["model"], str(job["batch"]), job["optimizer"] if job["mode"] == "train" else "", how(job)]
        if "error" in mine:
            print(f"| {' | '.join(cells)} | {mine['error']} | | | | | |")
            continue
        differences = [mine[name] - job[name] for name in FIGURES]
        device = 100 * (mine["device"] / job["nvml"] - 1) if job.get("nvml") else None
        exact += not any(differences)
        for name, difference in zip(FIGURES, differences):
            errors[name].append(100 * difference / job[name])
        if device is not None:
            errors["device"].append(device)
        cells += [f"{difference:+,}" if difference else "0" for difference in differences]
        shown = "" if device is None else f"{device:+.2f}"
        print(f"| {' | '.join(cells)} | {shown} | {mine['confidence']} | {mine['seconds']:.1f} |")
    count = len(errors["requested"])
    print(f"\n{count} jobs; {exact} without a byte of difference.\n")
    print("| | jobs without a difference | median, % | worst, % | under, % |\n| --- | --: | --: | --: | --: |")
    for name, values in errors.items():
        same = sum(not value for value in values)
        sizes = [abs(value) for value in values]
        print(f"| {name} | {same} | {statistics.median(sizes):.3f} | {max(sizes):.3f} | {min(0.0, *values):+.3f} |")


def main() -> None:
    """Run what is not kept, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--jobs", default="0-1000", help="FIRST-LAST or numbers with commas")
    parser.add_argument("--table", action="store_true", help="only print what is kept")
    options = parser.parse_args()
    data = json.loads((HERE / "data/pytorch_h200_jobs.json").read_text())
    jobs = data["jobs"]
    first, _, last = options.jobs.partition("-")
    numbers = range(int(first), min(int(last), len(jobs))) if last else map(int, options.jobs.split(","))
    found: dict[int, dict[str, Any]] = {}
    if options.keep and options.keep.exists():
        for line in options.keep.read_text().splitlines():
            row = json.loads(line)
            found[row["number"]] = row
    for number in [] if options.table else numbers:
        if number in found or "error" in jobs[number]:
            continue
        with Process(options.python, gpu_named("h200")) as process:
            found[number] = {"number": number} | run(jobs[number], process)
        if options.keep:
            with open(options.keep, "a") as file:
                file.write(json.dumps(found[number]) + "\n")
    print(data["about"] + "\n")
    table(jobs, found)


if __name__ == "__main__":
    main()
