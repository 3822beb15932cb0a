# SPDX-License-Identifier: Apache-2.0
"""DNNMem's evaluation (Gao et al. 2020, tables 6 and 7) with memc's models of its frameworks.

    python benchmarks/dnnmem.py MODELS

MODELS is a folder of training exports with an open `batch`: vgg16.onnx, resnet50.onnx, inception_v3.onnx (weights may be absent). The
paper's measured figures are fixtures. Its GPU is a P40 of 22.38 GB; estimates are what the allocator takes in that memory, and the
context. The sources of each framework's rules are in `python/memc/estimation/frameworks/`; no number is fitted to a row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from dnnmem_models import bert, lstm

from memc.estimation.frameworks import FRAMEWORKS
from memc.estimation.models import Loop, model_recording
from memc.estimation.simulation import simulate

TABLES = Path(__file__).parent / "data/dnnmem_tables.json"
GB = 2**30
PARTS = ("live", "rounded", "reserved", "all")
"""Ablations: what is live at the peak; with sizes rounded up; what is reserved; and the context."""


def model_of(row: dict[str, Any], models: Path, scratch: Path) -> Path:
    """The model's file."""
    if row["model"] == "lstm":
        return lstm(scratch / "lstm.onnx")
    if row["model"] == "bert":
        return bert(scratch / f"bert_{row['length']}.onnx", row["length"])
    return models / f"{row['model']}.onnx"


def estimates(path: Path, row: dict[str, Any], name: str, memory: int) -> dict[str, float]:
    """GB of the parts."""
    framework = FRAMEWORKS[name]
    optimizer = "adam" if row["model"] == "bert" else "sgd"
    loop = Loop(optimizer, {"batch": row["batch"]}, name, tf32=False)
    recording = model_recording(path, loop)
    outside = framework.outside or 0
    taken = simulate(
        recording.events, framework.allocator, device_total=memory, capacity=memory - outside, descending=True
    )
    live = int(recording.events.live_after().max())
    found = (live, taken.allocated.peak, taken.reserved.peak, taken.reserved.peak + outside)
    return dict(zip(PARTS, (nbytes / GB for nbytes in found)))


def percent(value: float, real: float) -> float:
    """The error."""
    return 100 * (value / real - 1)


def main() -> None:
    """Print both tables and the ablations."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path)
    options = parser.parse_args()
    data = json.loads(TABLES.read_text())
    memory = int(data["memory_gb"] * GB)
    errors: dict[tuple[int, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for table in (6, 7):
            print(f"\nTable {table}: GB, and errors in percent\n")
            print(
                "| model | framework | measured | memc | DNNMem | shape inference |\n| --- | --- | --: | --: | --: | --: |"
            )
            for row in (each for each in data["rows"] if each["table"] == table):
                path = model_of(row, options.models, Path(scratch))
                sizes = f" {row['batch']}" + (f" x {row['length']}" if "length" in row else "")
                for at, name in enumerate(data["frameworks"]):
                    real = row["real"][at]
                    found = estimates(path, row, name, memory)
                    others = {"DNNMem": row["dnnmem"][at], "shape inference": row["shapes"][at]}
                    for part, value in {**found, **others}.items():
                        errors.setdefault((table, name, part), []).append(abs(percent(value, real)))
                    cells = [f"{v:.1f} ({percent(v, real):+.1f})" for v in (found["all"], *others.values())]
                    print(f"| {row['model']}{sizes} | {name} | {real} | {' | '.join(cells)} |", flush=True)
    print("\nMean errors in percent: parts of memc's estimate, and the paper's\n")
    columns = (*PARTS, "DNNMem", "shape inference")
    print(f"| table | framework | {' | '.join(columns)} |\n| --: | --- |{' --: |' * len(columns)}")
    for table in (6, 7):
        for name in data["frameworks"]:
            cells = [f"{statistics.mean(errors[table, name, part]):.1f}" for part in columns]
            print(f"| {table} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
