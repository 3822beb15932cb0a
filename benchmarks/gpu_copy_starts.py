# SPDX-License-Identifier: Apache-2.0
"""What starting copies beside kernels, and waiting for them, takes the kernels of a captured step, by ways to order both.

    python benchmarks/gpu_copy_starts.py [--binary FILE] [--json FILE] [--seconds N] [--only PART ...]

Needs a GPU and, without `--binary`, nvcc. Each way runs in a process of its own, which also takes the same kernels without copies,
in turn; one that takes longer than ten seconds is ended, and counts as stuck. `us each` is what a step takes more than
without copies, for each copy; `wrong` counts words that did not arrive, or that left too early, in one step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".cu")

MIB = 2**20

KERNELS = 1000

MECHANISMS = (
    "event",
    "branches only",
    "event, no waits",
    "event waits only",
    "kernels without copies",
    "signals without copies",
    "early signals without copies",
    "memory without copies",
    "records without copies",
    "event and kernel",
    "kernel, branch",
    "early, branch",
    "kernel and event, branch",
    "memory, branch",
    "kernel, stream",
    "kernel, graph",
    "early, graph",
    "memory, stream",
    "record, stream",
)
"""As the source names them, and says what they are."""

CASES = (
    *((name, 100, 10 * MIB) for name in MECHANISMS),
    *(
        (name, count, size)
        for count, size in ((20, 10 * MIB), (100, 64))
        for name in ("event", "early, branch", "kernel, graph")
    ),
)
"""Mechanisms, copies of each direction, and bytes of each."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=600, help="begin nothing after that many")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of mechanisms' names")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        binary = args.binary or build(Path(folder))
        end = time.monotonic() + args.seconds
        for name, copies, size in CASES:
            if time.monotonic() > end or not any(part in name for part in args.only):
                continue
            rows.append(measured(binary, name, copies, size, args.steps))
            print(line(rows[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(rows))
    return 0


def build(folder: Path) -> Path:
    """The compiled source. Raises CalledProcessError where nvcc refuses it."""
    binary = folder / "gpu_copy_starts"
    subprocess.run(["nvcc", "-O2", "-std=c++17", "-arch=sm_90", "-o", str(binary), str(SOURCE), "-ldl"], check=True)
    return binary


def measured(binary: Path, name: str, copies: int, size: int, steps: int) -> dict[str, Any]:
    """One mechanism's row; `error` says why there is none."""
    row: dict[str, Any] = {"mechanism": name, "copies": 2 * copies, "bytes": size}
    command = [str(binary), name, str(KERNELS), str(copies), str(size), str(steps)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return row | {"error": "stuck"}
    if not done.stdout.startswith("{"):
        return row | {"error": f"exit {done.returncode}: {done.stderr[-200:]}"}
    return row | dict(json.loads(done.stdout))


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"| {row['mechanism']} | {row['copies']} | {row['bytes'] / MIB:.1f} |"
    if "error" in row:
        return f"{head} {row['error']} |"
    times = f"{row['plain_ms']:.2f} | {row['ms']:.2f} | {row['percent']:+.2f} % | {row['us_each']:.2f}"
    return f"{head} {times} | {row['wrong']} |"


if __name__ == "__main__":
    sys.exit(main())
