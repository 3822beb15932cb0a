# SPDX-License-Identifier: Apache-2.0
"""Runs of compilers, side by side, which end with who waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

MOST = 4
"""Commands at a time."""

Done = subprocess.CompletedProcess[str]


def run_side_by_side(commands: Sequence[Sequence[str]], check: Callable[[Done], None]) -> None:
    """Run commands, as many at a time as there are cores. `check` is called with each that is done.

    Raises what `check` raises first. Then, and on Ctrl-C, those that run are killed with what they have started, and no others begin.
    """
    running: set[subprocess.Popen[str]] = set()
    guard = threading.Lock()
    ended = False

    def run(command: Sequence[str]) -> None:
        with guard:
            if ended:
                return
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            running.add(process)
        out, error = process.communicate()
        with guard:
            running.discard(process)
            if ended:
                return
        check(Done(command, process.returncode, out, error))

    with ThreadPoolExecutor(min(MOST, os.cpu_count() or 1)) as workers:
        try:
            for _ in workers.map(run, commands):
                pass
        finally:
            with guard:
                ended = True
                for process in running:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
