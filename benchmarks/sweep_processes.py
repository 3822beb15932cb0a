# SPDX-License-Identifier: Apache-2.0
"""Processes of their own for the cells of `compile_sweep.py`, forked from a server that has imported what all of them need.

To import TVM, onnx and memc takes longer than to compile many a cell. The server has one thread, since a fork takes no other along:
what starts threads when it is imported (onnxruntime) is left to the processes.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What came of a process."""

    returned: Any
    """What its work returned; None if it did not end by itself."""
    exit_code: int | None
    """None where it was stopped at its time limit."""
    printed: str
    seconds: float


class Workers:
    """At most `jobs` processes at a time, each on its share of the cores, since a compilation takes all that it may use."""

    def __init__(self, jobs: int) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        folders = [str(Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)  # Before 3.13 the server takes its path from there alone.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["sweep_preload"])
        cores = sorted(os.sched_getaffinity(0))
        self.shares: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        for job in range(jobs):
            self.shares.put(cores[job::jobs] or [cores[job % len(cores)]])

    def run(self, work: Callable[..., Any], given: tuple[Any, ...], limit: float) -> Outcome:
        """`work(*given)`, whose result JSON can hold, in a process that ends after `limit` seconds at the latest, together
        with those that it began. Waits for cores first."""
        share = self.shares.get()
        try:
            with tempfile.TemporaryDirectory(prefix="sweep-", ignore_cleanup_errors=True) as scratch:
                start = time.perf_counter()
                process = self.context.Process(target=_work, args=(work, given, scratch, share))
                process.start()
                process.join(limit)
                in_time = not process.is_alive()
                if not in_time:
                    with contextlib.suppress(ProcessLookupError):  # It may not have a group of its own yet.
                        os.killpg(process.pid, signal.SIGKILL)
                    process.kill()
                    process.join()
                returned, printed = (Path(scratch, name) for name in ("returned", "printed"))
                return Outcome(
                    json.loads(returned.read_text()) if returned.exists() else None,
                    process.exitcode if in_time else None,
                    printed.read_text(errors="replace") if printed.exists() else "",
                    time.perf_counter() - start,
                )
        finally:
            self.shares.put(share)


def _work(work: Callable[..., Any], given: tuple[Any, ...], scratch: str, share: list[int]) -> None:
    """In the process: its group, cores, output and folder for temporary files, then the work."""
    os.setsid()
    os.sched_setaffinity(0, share)
    with open(Path(scratch, "printed"), "w") as printed:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(printed.fileno(), stream.fileno())
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    result = json.dumps(work(*given))
    Path(scratch, "whole").write_text(result)
    os.replace(Path(scratch, "whole"), Path(scratch, "returned"))
