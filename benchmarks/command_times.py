# SPDX-License-Identifier: Apache-2.0
"""Seconds that commands take from the shell's view, beside the most that they may take.

    python benchmarks/command_times.py --models DIR --cache CACHE [--out FILE.md]

Each command is a process of its own, run in turns with the others, with compiled Python code in a folder of its own, as an installed wheel
has it; wall and processor seconds (user and system) are each the least of the rounds, as other programs only add to them. `memc run` is
that of a model of one op, less `import tvm` in the same Python. The plan of gpt2's training step (`report_speed.py`) is given as .memir
text, that of 100,000 random tensors as a .csv with offsets, so that reports are of plans that are there. Exit code 1 if the processor seconds exceed what a command may take. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report_speed import gpt2, random_plan

import memc
from memc.planning.csv_file import plan_csv

PYTHON = sys.executable
MEMC = str(Path(sys.executable).with_name("memc"))
MB = 1e6


@dataclass
class Case:
    """A command, and the least that it took."""

    name: str
    command: Sequence[str]
    target: float | None = None
    """Seconds, beyond those of `beyond`."""
    beyond: str | None = None
    """The case whose seconds do not count."""
    writes: Path | None = None
    most_bytes: float | None = None
    """Of the file that it writes."""
    wall: float = field(default=float("inf"), init=False)
    processor: float = field(default=float("inf"), init=False)

    def run(self, environment: Mapping[str, str]) -> None:
        """Run it once. Raises CalledProcessError."""
        begin = time.perf_counter()
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        if status:
            raise subprocess.CalledProcessError(status, self.command)
        self.wall = min(self.wall, wall)
        self.processor = min(self.processor, usage.ru_utime + usage.ru_stime)


def cases(models: Path, cache: Path, folder: Path) -> list[Case]:
    """The commands, with what they read in a folder."""
    (folder / "one.memir").write_text(
        "func @main(%x: f32[4] {role = input}) -> f32[4] {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n"
    )
    memc.compile(folder / "one.memir", folder / "one.memc")
    (folder / "gpt2.memir").write_text(f"{gpt2(models, cache).module}\n")
    plan = random_plan()
    (folder / "random.csv").write_text(plan_csv(plan.tensors, plan.offsets))
    page, large = folder / "gpt2.html", folder / "random.html"
    step = [MEMC, "report", str(folder / "gpt2.memir"), "-o", str(page)]
    wide = [MEMC, "report", str(folder / "random.csv"), "-o", str(large)]
    return [
        Case("`memc --help`", [MEMC, "--help"], 0.3),
        Case("`memc compile --help`", [MEMC, "compile", "--help"]),
        Case("`import tvm`", [PYTHON, "-c", "import tvm"]),
        Case(
            "`memc run` of one op, beyond `import tvm`",
            [MEMC, "run", str(folder / "one.memc"), "--input", "x=1"],
            1.0,
            "`import tvm`",
        ),
        Case("`memc report` of gpt2's training step", step, 2.0, writes=page, most_bytes=3 * MB),
        Case("`memc report` of 100,000 tensors", wide, 10.0, writes=large),
    ]


def table(measured: Sequence[Case]) -> tuple[list[str], list[str]]:
    """Markdown, and the names of the cases that miss their targets."""
    rows = ["| command | wall (s) | processor (s) | at most (s) | file (MB) |", "| --- | --: | --: | --: | --: |"]
    missed = []
    by_name = {case.name: case for case in measured}
    for case in measured:
        less = None if case.beyond is None else by_name[case.beyond]
        wall, processor = (
            getattr(case, of) - (0.0 if less is None else getattr(less, of)) for of in ("wall", "processor")
        )
        size = None if case.writes is None else case.writes.stat().st_size
        if (case.target is not None and processor > case.target) or (size or 0) > (case.most_bytes or float("inf")):
            missed.append(case.name)
        most = "" if case.target is None else f"{case.target:.1f}"
        rows.append(
            f"| {case.name} | {wall:.2f} | {processor:.2f} | {most} | {'' if size is None else f'{size / MB:.2f}'} |"
        )
    return rows, missed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = cases(arguments.models, arguments.cache, Path(folder))
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(arguments.rounds):
            for case in measured:
                case.run(environment)
        rows, missed = table(measured)
    text = "\n".join(rows)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    for name in missed:
        print(f"missed: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
