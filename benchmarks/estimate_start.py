# SPDX-License-Identifier: Apache-2.0
"""How long `memc estimate` takes in all for an ONNX model, of which most is loading libraries.

    python benchmarks/estimate_start.py [--repeat 9]

Each command runs in a process of its own, several times in turn; seconds of processor time, of which the least is taken, as other
work on the machine only adds to it. `the estimate itself` is what a process takes for it (by the clock) that has loaded these libraries.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

MODEL = str(Path(__file__).resolve().parents[1] / "tests/data/models/resnet18.onnx")
MEMC = [sys.executable, "-m", "memc"]
ESTIMATE = [*MEMC, "estimate", MODEL, "--train", "--dim", "batch=32", "--gpu", "h200"]
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "memc --help": [*MEMC, "--help"],
    "importing numpy, onnx, typer, rich and tvm_ffi": [
        sys.executable,
        "-c",
        "import numpy, onnx, typer, rich.table, tvm_ffi",
    ],
    "memc estimate resnet18.onnx --train": ESTIMATE,
    "importing the whole compiler": [sys.executable, "-c", "import memc.driver, memc.cli.values"],
}

ITSELF = """
import sys, onnx
from memc.estimation import estimate
print(estimate(sys.argv[1], train=True, dims={"batch": 32}, gpu="h200").seconds)
"""


def seconds(command: list[str]) -> float:
    """Of processor time."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    least = dict.fromkeys(COMMANDS, float("inf"))
    itself = float("inf")
    for _ in range(repeat):
        for name, command in COMMANDS.items():
            least[name] = min(least[name], seconds(command))
        found = subprocess.run([sys.executable, "-c", ITSELF, MODEL], capture_output=True, text=True, check=True)
        itself = min(itself, float(found.stdout))
    print("| command | seconds |\n| --- | --: |")
    for name, value in least.items():
        print(f"| {name} | {value:.2f} |")
    print(f"| the estimate itself | {itself:.2f} |")


if __name__ == "__main__":
    main()
