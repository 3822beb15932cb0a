# SPDX-License-Identifier: Apache-2.0
"""How long copies between a device and its host take: on the CPU those of the lanes that programs use, on CUDA those of pinned
memory on streams of their own."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import tvm_ffi

from memc import native
from memc.ir.errors import UsageError
from memc.runtime.execute.tensors import tensor_over

Way = Literal["out", "in"]

WAYS: tuple[Way, Way] = ("out", "in")

SIZES = (2**16, 2**20, 2**22, 2**24, 2**26)
"""Bytes of the copies that are timed alone; the largest are timed beside others, too."""

MEASURED_BYTES = 2**27
"""How much is copied for the time of one size, but at least `LEAST` times, and at most `MOST`."""

LEAST, MOST = 5, 50

OTHERS = 6
"""Copies the other way beside two that are timed: they last longer as long as that way is not three times as quick."""

REPEATS = 2
"""How often copies beside others are timed."""


class Copier(Protocol):
    """Copies in two lanes, each one after another."""

    def begin(self, way: Way, nbytes: int) -> None:
        """Enqueue a copy."""

    def finish(self, way: Way) -> None:
        """Wait until the lane is idle."""


@dataclass(frozen=True)
class CopyTimes:
    """What copies took. All times are seconds."""

    alone: dict[Way, dict[int, float]]
    """The median of one copy beside an idle lane, by bytes."""
    both: dict[Way, float]
    """One copy of the most bytes while the other lane is busy."""


def copy_times(kind: str, index: int = 0) -> CopyTimes:
    """The times of copies between a kind of device, `llvm` or `cuda`, and the host. Raises UsageError while MEMC_COPIES says
    when copies run, and RuntimeError where pinned memory is not to be had."""
    if kind == "cuda":
        from memc.runtime.cuda.pinned_copies import pinned_copies

        with pinned_copies(index, SIZES[-1]) as copier:
            return measured(copier)
    with lanes_of_cpu(SIZES[-1]) as copier:
        return measured(copier)


def measured(copier: Copier) -> CopyTimes:
    """The times of a copier's copies."""
    for way in WAYS:
        _timed(copier, way, SIZES[-1], 1)  # Pages are touched, and lanes made.
    alone = {}
    for way in WAYS:
        counts = {nbytes: min(max(MEASURED_BYTES // nbytes, LEAST), MOST) for nbytes in SIZES}
        alone[way] = {
            nbytes: statistics.median(_timed(copier, way, nbytes, 1) for _ in range(count))
            for nbytes, count in counts.items()
        }
    both = {
        way: statistics.median(_beside(copier, way, other) for _ in range(3)) for way, other in zip(WAYS, WAYS[::-1])
    }
    return CopyTimes(alone, both)


def _beside(copier: Copier, way: Way, other: Way) -> float:
    for _ in range(OTHERS):
        copier.begin(other, SIZES[-1])
    seconds = _timed(copier, way, SIZES[-1], 2)
    copier.finish(other)
    return seconds


def _timed(copier: Copier, way: Way, nbytes: int, count: int) -> float:
    """Seconds of one of `count` copies, one after another."""
    start = time.perf_counter()
    for _ in range(count):
        copier.begin(way, nbytes)
    copier.finish(way)
    return (time.perf_counter() - start) / count


class _Lanes:
    """The lanes of memc's library, which are threads."""

    NAMES = {"out": "d2h", "in": "h2d"}

    def __init__(self, nbytes: int) -> None:
        native.load()
        self.start = tvm_ffi.get_global_func("memc.copy.start")
        self.done = tvm_ffi.get_global_func("memc.copy.done")
        self.arrays = {way: (np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)) for way in WAYS}
        self.at = 0  # Where the next copy begins: not where the last was, which caches still hold.
        self.last: dict[Way, Any] = {}

    def begin(self, way: Way, nbytes: int) -> None:
        source, destination = self.arrays[way]
        self.at = self.at + nbytes if self.at + 2 * nbytes <= source.size else 0
        part = slice(self.at, self.at + nbytes)
        self.last[way] = self.start(tensor_over(source[part]), tensor_over(destination[part]), self.NAMES[way])

    def finish(self, way: Way) -> None:
        self.done(self.last[way])  # And with it those before it.


@contextmanager
def lanes_of_cpu(nbytes: int) -> Iterator[Copier]:
    """Copies of at most so many bytes as programs for the CPU make them."""
    if os.environ.get("MEMC_COPIES", "thread") not in ("", "thread"):
        raise UsageError("MEMC_COPIES: expected none while the link is measured, since it says when copies run")
    lanes = _Lanes(nbytes)
    try:
        yield lanes
    finally:
        tvm_ffi.get_global_func("memc.copy.drain")()
