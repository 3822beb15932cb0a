# SPDX-License-Identifier: Apache-2.0
"""Native searches that tell how far they have come, and end when who waits for them is interrupted.

A search runs on a thread of its own, without Python; this one looks at the numbers that it writes. See
`cpp/solvers/common/watch.h`.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from memc.ir.progress import Reached, listener
from memc.solvers.arrays import tensor

T = TypeVar("T")

LOOK = 0.1
"""Seconds between two looks at a search."""


class _Slot(enum.IntEnum):
    """Where each number of a watch lies."""

    CANCELLED = 0
    DONE = 1
    TOTAL = 2
    BEST = 3
    BOUND = 4


class Watch:
    """The numbers of one search."""

    def __init__(self) -> None:
        self._slots = np.zeros(len(_Slot), np.int64)
        self._slots[_Slot.BEST] = self._slots[_Slot.BOUND] = -1

    @property
    def numbers(self) -> Any:
        """As native code takes them."""
        return tensor(self._slots)

    def cancel(self) -> None:
        """Have the search end, soon, with an InterruptedError."""
        self._slots[_Slot.CANCELLED] = 1

    def reached(self, work: str, seconds: float, time_limit: float | None) -> Reached:
        """What there is to tell after some seconds of it."""
        _, done, total, best, bound = self._slots.tolist()
        share = min(done / total, 1.0) if total > 0 else None
        left = None
        if time_limit is not None:
            left = max(time_limit - seconds, 0.0)
            share = min(seconds / time_limit, 1.0) if time_limit > 0 else 1.0
        return Reached(work, share, best if best >= 0 else None, bound if bound >= 0 else None, left)


class _Call(threading.Thread, Generic[T]):
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(name="memc-search", daemon=True)
        self.call = call
        self.error: BaseException | None = None
        self.value: T
        self.ended = threading.Event()  # `join` takes a thread for ended where it is interrupted.

    def run(self) -> None:
        try:
            self.value = self.call()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


def watched(work: str, call: Callable[[Any], T], time_limit: float | None = None) -> T:
    """What `call` returns, or raises, for the numbers of a watch.

    On the main thread, which Ctrl-C finds, the search ends before KeyboardInterrupt is raised. Who listens (`memc.ir.progress`) is
    told of it; what a listener raises ends the search, too.

    Args:
        work: what it is, for who listens.
        time_limit: seconds that it has.
    """
    watch = Watch()
    tells = listener()
    if tells is None and threading.current_thread() is not threading.main_thread():
        return call(watch.numbers)
    return watched_call(work, lambda: call(watch.numbers), watch, time_limit)


def watched_call(work: str, call: Callable[[], T], watch: Any, time_limit: float | None) -> T:
    """The same for any call, with what has `cancel` and `reached` as a Watch does."""
    tells = listener()
    thread = _Call(call)
    began = time.monotonic()
    thread.start()
    try:
        while not thread.ended.wait(LOOK):
            if tells is not None:
                tells(watch.reached(work, time.monotonic() - began, time_limit))
    except BaseException:
        watch.cancel()
        thread.ended.wait()
        raise
    if thread.error is not None:
        raise thread.error
    return thread.value
