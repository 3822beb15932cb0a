# SPDX-License-Identifier: Apache-2.0
"""An application that asks the replay engine step by step, for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from memc.replay import ReplayPlan, WatchedStep, make_plan
from memc.replay.engine import Engine, EventKind, Rehearsal, StepFindings, StepMode

KIB = 1024


@dataclass
class Application:
    """Blocks have numbers of their own; sizes are in bytes."""

    rehearsal: Rehearsal = field(default_factory=lambda: Rehearsal(fills=True))
    blocks: int = 0

    @property
    def engine(self) -> Engine:
        return self.rehearsal.engine

    def add_plan(self, plan: ReplayPlan, key: int = 0) -> None:
        self.engine.add_plan(key, plan.nbytes, plan.streams, plan.threads, plan.offsets, plan.cyclic, plan.arena_bytes)

    def begin(self, key: int = 0) -> StepMode:
        return self.engine.begin_step(key)

    def end(self, completed: bool = True) -> StepFindings:
        return self.engine.end_step(completed)

    def ask(self, nbytes: int, stream: int = 0, thread: int = 0) -> tuple[int, int]:
        """A new block's number, and its offset in the arena, -1 for a native one."""
        self.blocks += 1
        return self.blocks, self._play(EventKind.ALLOCATE, self.blocks, nbytes, stream, thread)

    def free(self, *blocks: int) -> None:
        for block in blocks:
            self._play(EventKind.FREE, block)

    def free_elsewhere(self, *blocks: int) -> None:
        """By another thread; returns once it is done."""
        for block in blocks:
            self._play(EventKind.FREE_ELSEWHERE, block)
        self._play(EventKind.JOIN)

    def use(self, block: int, stream: int) -> None:
        self._play(EventKind.USE, block, 0, stream)

    def step(
        self,
        step: WatchedStep,
        key: int = 0,
        *,
        completed: bool = True,
        sizes: Sequence[int] | None = None,
        streams: Sequence[int] | None = None,
        threads: Sequence[int] | None = None,
    ) -> tuple[list[int], StepFindings]:
        """A step as watched, but for these columns; blocks that outlive it are freed at its end. The offsets of all requests."""
        self.begin(key)
        offsets = self.requests(step, sizes=sizes, streams=streams, threads=threads)
        return offsets, self.end(completed)

    def requests(
        self,
        step: WatchedStep,
        first: int = 0,
        end: int | None = None,
        *,
        sizes: Sequence[int] | None = None,
        streams: Sequence[int] | None = None,
        threads: Sequence[int] | None = None,
    ) -> list[int]:
        """Requests from `first` to before `end` with their frees."""
        end = len(step) if end is None else end
        live: dict[int, int] = {}
        offsets = []
        for i in range(first, end):
            for j in [j for j in live if step.freed[j] <= i]:
                self.free(live.pop(j))
            nbytes = int(step.nbytes[i]) if sizes is None else sizes[i]
            stream = int(step.streams[i]) if streams is None else streams[i]
            block, offset = self.ask(nbytes, stream, 0 if threads is None else threads[i])
            live[i] = block
            offsets.append(offset)
        self.free(*live.values())
        return offsets

    def check(self) -> None:
        assert self.rehearsal.first_wrong == ""

    def _play(self, kind: EventKind, block: int = 0, nbytes: int = 0, stream: int = 0, thread: int = 0) -> int:
        return int(self.rehearsal.play([(kind, block, nbytes, stream, thread)])[0])


def watched(*rows: tuple[int, int], streams: Sequence[int] | None = None) -> WatchedStep:
    """A step of (KiB, freed) rows."""
    used = [0] * len(rows) if streams is None else streams
    return WatchedStep.of([(size * KIB, stream, 0, freed) for (size, freed), stream in zip(rows, used)])


def planned(step: WatchedStep) -> ReplayPlan:
    return make_plan(step, solver="first-fit")


def placed(step: WatchedStep, offsets: Sequence[int]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """Offsets given by hand, in KiB, and the arena's bytes."""
    array = np.array(offsets, np.int64)
    column = np.where(array < 0, -1, array * KIB)
    return column, int((column + step.nbytes)[array >= 0].max())


def running(step: WatchedStep, plan: ReplayPlan | None = None) -> Application:
    """An application of which one step was already replayed as planned."""
    application = Application()
    application.add_plan(plan or planned(step))
    offsets, _ = application.step(step)
    assert -1 not in offsets
    return application
