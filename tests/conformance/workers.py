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


class _LostError(Exception):
    """A worker died or did not answer; the message is the verdict."""


class _Worker:
    """A process that runs one case after another."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("fork")
        self.ours, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, task), daemon=True)
        self.process.start()
        theirs.close()

    def result(self, name: str, timeout: float) -> Any:
        """What the task gives. Raises _LostError."""
        try:
            self.ours.send(name)
            if self.ours.poll(timeout):
                return self.ours.recv()
        except (EOFError, OSError):
            raise _LostError("crash") from None
        raise _LostError("hang")

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.ours.close()


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
    pending: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        pending.put(name)
    results: dict[str, Any] = {}
    lock = threading.Lock()

    def drive() -> None:
        worker: _Worker | None = None
        while True:
            try:
                name = pending.get_nowait()
            except queue.Empty:
                break
            if worker is None:
                with lock:
                    worker = _Worker(task)
            try:
                result = worker.result(name, timeout)
            except _LostError as error:
                result = failed(name, str(error))
                worker.end()
                worker = None
            with lock:
                results[name] = result
                report(result)
        if worker is not None:
            worker.end()

    threads = [threading.Thread(target=drive) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[name] for name in names]
