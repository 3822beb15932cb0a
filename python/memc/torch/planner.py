# SPDX-License-Identifier: Apache-2.0
"""The plans of one device: made of watched steps on a thread of their own, and handed to the engine between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from memc.replay import NEVER, ReplayPlan, WatchedStep, make_plan
from memc.replay.engine import Engine, StepFindings, StepMode, StepRecords

from .door import reserved

Fits = Callable[[ReplayPlan], bool]
"""Whether the plan's arena may be made."""


@dataclass
class Key:
    """What is known of the steps of one key."""

    plan: ReplayPlan | None = None
    step: WatchedStep | None = None
    """That the plan is made of."""
    coming: Future[tuple[WatchedStep, ReplayPlan]] | None = None
    equal: int = 0
    """Watched steps in a row that asked for the same."""
    settled: bool = True
    """What its steps leave to the allocator has been put together since the arena was made."""
    refused: bool = False
    """Its arena would take more than the steps take without one."""


@dataclass
class Planner:
    """Watches the steps of a device, and plans them."""

    device: int
    engine: Engine
    watch: int
    """Equal steps in a row, after which a plan is made."""
    torch_version: str
    device_kind: str
    keys: dict[int, Key] = field(default_factory=dict)
    doing: StepMode = StepMode.PASS
    seconds: float = 0.0
    """Of planning."""
    notes: list[str] = field(default_factory=list)
    """Why steps are not replayed."""
    watched: int = 0
    """Steps."""
    reserved_before: int = 0
    """Bytes at the end of watched steps, at the most."""
    reserved_after: int = 0
    """The same of replayed steps."""
    _now: int = 0
    _workers: ThreadPoolExecutor | None = None

    def prepare_step(self, key: int, fits: Fits, settle: Callable[[], None]) -> None:
        """Hands over a plan that is ready, if its arena `fits`; calls `settle` once a step has followed it."""
        self._now = key
        of = self.keys.setdefault(key, Key())
        if not of.settled and (self.doing is StepMode.REPLAY or of.refused):
            of.settled = True
            settle()
        if of.coming is not None and of.coming.done():
            coming, of.coming = of.coming, None
            error = coming.exception()
            if error is not None:  # The steps go on without a plan.
                of.refused = True
                self.notes.append(f"cuda:{self.device}: not replayed: planning failed: {' '.join(str(error).split())}")
                return
            step, plan = coming.result()
            self.seconds += plan.seconds
            self.give(key, plan, fits)
            of.step = step

    def begin_step(self) -> None:
        """Of the key that was prepared."""
        self.doing = self.engine.begin_step(self._now)

    def give(self, key: int, plan: ReplayPlan, fits: Fits) -> None:
        """Follow the plan in this key's steps, if its arena `fits`."""
        of = self.keys.setdefault(key, Key())
        if not plan.planned.any():
            return
        if plan.arena_bytes > self.engine.statistics().arena_bytes and not fits(plan):
            of.refused, of.settled = True, False
            return
        of.plan, of.refused, of.settled = plan, False, False
        self.engine.add_plan(key, plan.nbytes, plan.streams, plan.threads, plan.offsets, plan.cyclic, plan.arena_bytes)

    def end_step(self, completed: bool) -> StepFindings:
        """Begins to plan where that is due."""
        found = self.engine.end_step(completed)
        of = self.keys[self._now]
        now, _ = reserved(self.device)
        if self.doing is StepMode.WATCH:
            self.watched += 1
            self.reserved_before = max(self.reserved_before, now)
            of.equal = of.equal + 1 if completed and StepFindings.HOT in found and of.equal else int(completed)
        elif self.doing is StepMode.REPLAY and of.settled:
            self.reserved_after = max(self.reserved_after, now)
        if not completed or of.coming is not None or of.refused:
            return found
        if StepFindings.ESCAPED in found and of.step is not None:
            self._plan_escaping(of)
        elif StepFindings.WANTS_PLAN in found and of.equal >= self.watch:
            self._plan_watched(of)
        return found

    def _plan_watched(self, of: Key) -> None:
        last, before = self.engine.records(1), self.engine.records(2)
        if last is None or not len(last.nbytes):
            return
        step = _watched(last, None)
        if before is not None and before.key == last.key:
            earlier = _watched(before, last)
            step = earlier.merged(step) if earlier.same_sequence(step) else step
        self._plan(of, step)

    def _plan_escaping(self, of: Key) -> None:
        assert of.step is not None and of.plan is not None
        step, freed, escaping = of.step, of.step.freed.copy(), self.engine.escaping(self._now)
        freed[escaping] = NEVER
        if np.array_equal(freed, step.freed):
            return
        held = [(int(of.plan.offsets[row]), int(of.plan.sizes[row])) for row in escaping if of.plan.planned[row]]
        self._plan(of, WatchedStep(step.nbytes, step.streams, step.threads, freed, step.waits), held)

    def _plan(self, of: Key, step: WatchedStep, held: Sequence[tuple[int, int]] = ()) -> None:
        """`held`: bytes of the arena in which blocks are that outlive their steps."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(1, "memc-planner")
        of.coming = self._workers.submit(self._made, step, held)

    def _made(self, step: WatchedStep, held: Sequence[tuple[int, int]]) -> tuple[WatchedStep, ReplayPlan]:
        plan = make_plan(step, occupied=held, torch_version=self.torch_version, device_kind=self.device_kind)
        return step, plan

    def wait(self) -> None:
        """Until plans that are being made are ready for the next step."""
        for of in self.keys.values():
            if of.coming is not None:
                of.coming.exception()

    def close(self) -> None:
        """Make no more plans."""
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)


def _watched(records: StepRecords, following: StepRecords | None) -> WatchedStep:
    """The step as plans are made of it."""
    freed = records.freed_before_request(following)
    return WatchedStep(records.nbytes, records.streams, records.threads, freed)
