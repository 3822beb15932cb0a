# SPDX-License-Identifier: Apache-2.0
"""The plans of a region's keys: made of watched steps on a thread of their own, and handed to the engine between steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from memc.replay import NEVER, ReplayPlan, WatchedStep, make_plan
from memc.replay.engine import Engine, StepFindings, StepMode, StepRecords

MOST_PLANS = 32
"""That an engine keeps."""


@dataclass
class Key:
    """What is known of the steps of one key."""

    plan: ReplayPlan | None = None
    step: WatchedStep | None = None
    """That the plan is made of."""
    coming: Future[tuple[WatchedStep, ReplayPlan]] | None = None


@dataclass
class Plans:
    """Of one engine."""

    engine: Engine
    device_kind: str
    keys: dict[int, Key] = field(default_factory=dict)
    seconds: float = 0.0
    """Of planning."""
    _known: OrderedDict[int, None] = field(default_factory=OrderedDict)
    """Keys whose plans the engine has, the last used one at the end."""
    _workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "memc-planner"))

    def prepare(self, number: int) -> None:
        """Have the engine know the plan of the key whose step begins; or none, so that the step is watched without the arena beside
        it. Raises what a planner has raised."""
        for other, of in self.keys.items():
            if of.coming is not None and of.coming.done():
                of.step, made = of.coming.result()
                of.coming = None
                self.seconds += made.seconds
                self.have(other, made)
        plan = self.keys.setdefault(number, Key()).plan
        if plan is None:
            self._drop(len(self._known))
        elif number in self._known:
            self._known.move_to_end(number)
        elif plan.planned.any():
            self._drop(len(self._known) - MOST_PLANS + 1)
            self._give(number, plan)

    def have(self, number: int, plan: ReplayPlan) -> None:
        """The key's plan from now on."""
        self.keys.setdefault(number, Key()).plan = plan
        if number in self._known:
            self._give(number, plan)

    def _give(self, number: int, plan: ReplayPlan) -> None:
        self._known[number] = None
        columns = (plan.nbytes, plan.streams, plan.threads, plan.offsets, plan.cyclic)
        self.engine.add_plan(number, *columns, plan.arena_bytes)

    def _drop(self, count: int) -> None:
        """The plans that were used least lately. The engine gives its arena back without any."""
        for _ in range(count):
            self.engine.drop_plan(self._known.popitem(last=False)[0])

    def ended(self, number: int, mode: StepMode, found: StepFindings) -> None:
        """Begin to plan, where the end of a step has found that this pays, or a step of a key of its own was watched: another of
        the key is likely to ask for the same, and comes when steps of other keys have passed."""
        of = self.keys[number]
        if StepFindings.GAVE_UP in found:
            of.plan = None
        if of.coming is not None:
            return
        if StepFindings.ESCAPED in found and of.step is not None:
            freed = of.step.freed.copy()
            escaping = self.engine.escaping(number)
            freed[escaping] = NEVER
            step = of.step
            if of.plan is not None and not np.array_equal(freed, step.freed):
                held = [
                    (int(of.plan.offsets[row]), int(of.plan.sizes[row])) for row in escaping if of.plan.planned[row]
                ]
                self._plan(of, WatchedStep(step.nbytes, step.streams, step.threads, freed, step.waits), held)
        elif StepFindings.WANTS_PLAN in found or (mode is StepMode.WATCH and number > 0):
            last, before = self.engine.records(1), self.engine.records(2)
            if last is not None and last.key == number and len(last.nbytes):
                self._plan(of, watched(last, before))

    def _plan(self, of: Key, step: WatchedStep, held: Sequence[tuple[int, int]] = ()) -> None:
        """`held`: offsets and bytes of the arena that blocks keep which have outlived their steps."""

        def make() -> tuple[WatchedStep, ReplayPlan]:
            return step, make_plan(step, occupied=held, device_kind=self.device_kind)

        of.coming = self._workers.submit(make)

    def wait(self) -> None:
        """Until what is being planned is ready for the next step."""
        for of in self.keys.values():
            if of.coming is not None:
                of.coming.exception()

    def close(self) -> None:
        """Make no more plans."""
        self._workers.shutdown(wait=False, cancel_futures=True)


def watched(last: StepRecords, before: StepRecords | None) -> WatchedStep:
    """The last recorded step; if the one before it has its key and sequence, that one, with the later free of both."""
    step = WatchedStep(last.nbytes, last.streams, last.threads, _freed(last, None))
    if before is None or before.key != last.key:
        return step
    earlier = WatchedStep(before.nbytes, before.streams, before.threads, _freed(before, last))
    return earlier.merged(step) if earlier.same_sequence(step) else step


def _freed(records: StepRecords, following: StepRecords | None) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """As `WatchedStep.freed`; a block is not free before its own request."""
    freed = records.freed_before_request(following)
    return np.where(freed == NEVER, NEVER, np.maximum(freed, np.arange(len(freed)) + 1))
