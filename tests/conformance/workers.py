# SPDX-License-Identifier: Apache-2.0
"""Runs cases in worker processes, so that a crash or a hang is a result and not the end of the run."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

Task = Callable[[str], Any]
"""Takes a case's name and returns something that can be pickled."""


def _serve(connection: Connection, task: Task) -> None:
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        connection.send(task(name))


def run(
    names: Sequence[str],
    task: Task,
    failed: Callable[[str, str], Any],
    *,
    workers: int = 2,
    timeout: float = 60.0,
    report: Callable[[Any], None] = lambda result: None,
) -> list[Any]:
    """The results of `task` for each name, in the order of `names`.

    `failed(name, verdict)` makes the result of a case whose process died (`crash`) or took longer than `timeout`
    seconds (`hang`). Workers are forked, so `task` may be any function; `report` is called as results come in.
    """
    context = multiprocessing.get_context("fork")
    pending: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        pending.put(name)
    results: dict[str, Any] = {}
    lock = threading.Lock()

    def drive() -> None:
        process: Any = None
        ours: Any = None
        while True:
            try:
                name = pending.get_nowait()
            except queue.Empty:
                break
            if process is None:
                with lock:
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_serve, args=(theirs, task), daemon=True)
                    process.start()
                    theirs.close()
            lost = True
            try:
                ours.send(name)
                if ours.poll(timeout):
                    result = ours.recv()
                    lost = False
                else:
                    result = failed(name, "hang")
            except (EOFError, OSError):
                result = failed(name, "crash")
            if lost:
                process.kill()
                process.join()
                ours.close()
                process = None
            with lock:
                results[name] = result
                report(result)
        if process is not None:
            process.kill()
            process.join()

    threads = [threading.Thread(target=drive) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[name] for name in names]
