# SPDX-License-Identifier: Apache-2.0
"""The plans of one device's steps: made of watched steps on a thread of their own, and handed to the engine between steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from .engine import Engine, StepFindings, StepMode, StepRecords
from .plan import ReplayPlan
from .planner import make_plan
from .watched import NEVER, WatchedStep

MOST_PLANS = 32
"""That an engine keeps."""

MOST_KEYS = 512
"""Of which plans are kept."""


@dataclass
class Key:
    """What is known of the steps of one key."""

    plan: ReplayPlan | None = None
    step: WatchedStep | None = None
    """That the plan is made of."""
    coming: Future[tuple[WatchedStep, ReplayPlan]] | None = None
    equal: int = 0
    """Watched steps in a row that asked for the same."""
    left: int = 0
    """Bytes of its blocks that are live when the step ends, and freed in the next."""
    refused: bool = False
    """Its steps are not to be planned any more."""


@dataclass
class Driver:
    """Watches the steps of a device, plans them, and has the engine follow the plans."""

    engine: Engine
    device_kind: str = ""
    torch_version: str = ""
    label: str = ""
    """Of the device, in notes."""
    watch: int = 2
    """Equal steps in a row after which a plan is made. Of a key of its own one is enough: the next one like it may be far."""
    fits: Callable[[ReplayPlan, int], bool] = lambda _, left: True
    """Whether the plan's arena may be made, which is done when `left` bytes of the step before are freed. Asked between steps."""
    settle: Callable[[], None] = lambda: None
    """Called between steps, after the first step with a new arena, or without the one that did not fit."""
    makes_at_begin: bool = False
    """Whether arenas are made when a step begins, though blocks of the step before are alive."""
    reserved: Callable[[], int] = lambda: 0
    """Bytes that the framework's allocator has got of the device."""

    keys: OrderedDict[int, Key] = field(default_factory=OrderedDict)
    """The last used one at the end."""
    doing: StepMode = StepMode.PASS
    """What the step does."""
    watched: int = 0
    """Steps."""
    seconds: float = 0.0
    """Of planning."""
    notes: list[str] = field(default_factory=list)
    """Why steps are not replayed."""
    reserved_before: int = 0
    """Bytes at the end of steps without a plan of theirs, at the most."""
    reserved_after: int = 0
    """The same of replayed steps."""

    _now: int = 0
    _is_keyed: bool = False
    _steps: int = 0
    _settled: bool = True
    _recorded: int | None = None
    """The key of the last step, which is planned once it is known what the next one frees."""
    _known: OrderedDict[int, None] = field(default_factory=OrderedDict)
    """Keys whose plans the engine has, the last used one at the end."""
    _workers: ThreadPoolExecutor | None = None

    def prepare_step(self, key: int, is_keyed: bool = False) -> None:
        """Have the engine know the plans that are ready, as far as their arenas fit. `is_keyed`: the key tells these steps from others."""
        self._now, self._is_keyed = key, is_keyed
        if not self._settled and self.doing is StepMode.REPLAY:
            self._settled = True
            self.settle()
        for number, of in list(self.keys.items()):
            if of.coming is not None and of.coming.done():
                self._take(number, of)
        of = self.keys.setdefault(key, Key())
        self.keys.move_to_end(key)
        if len(self.keys) > MOST_KEYS:
            self._forget(next(iter(self.keys)))
        if key in self._known:
            self._known.move_to_end(key)
        elif of.plan is not None and not of.refused:
            self._tell(key, of.plan)

    def begin_step(self) -> StepMode:
        """Of the key that was prepared."""
        self._steps += 1
        self.doing = self.engine.begin_step(self._now)
        return self.doing

    def give(self, key: int, plan: ReplayPlan) -> None:
        """Follow the plan in this key's steps, if its arena fits."""
        of = self.keys.setdefault(key, Key())
        if not plan.planned.any():
            return
        if plan.arena_bytes > self.engine.statistics().arena_bytes:
            of.refused, self._settled = not self.fits(plan, of.left), False
            if of.refused:
                return
        of.plan = plan
        self._tell(key, plan)

    def _tell(self, key: int, plan: ReplayPlan) -> None:
        if key not in self._known and len(self._known) == MOST_PLANS:
            self.engine.drop_plan(self._known.popitem(last=False)[0])
        self._known[key] = None
        columns = (plan.nbytes, plan.streams, plan.threads, plan.offsets, plan.cyclic)
        self.engine.add_plan(key, *columns, plan.arena_bytes, -1 if self.makes_at_begin else plan.arena_from)

    def _take(self, key: int, of: Key) -> None:
        assert of.coming is not None
        coming, of.coming = of.coming, None
        error = coming.exception()
        if error is not None:  # The steps go on without a plan.
            of.refused = True
            self.notes.append(f"{self.label}not replayed: planning failed: {' '.join(str(error).split())}")
            return
        of.step, plan = coming.result()
        self.seconds += plan.seconds
        self.give(key, plan)

    def _forget(self, key: int) -> None:
        del self.keys[key]
        if key in self._known:
            del self._known[key]
            self.engine.drop_plan(key)

    def end_step(self, completed: bool) -> StepFindings:
        """Begins to plan where that is due."""
        found = self.engine.end_step(completed)
        of = self.keys[self._now]
        self._account(completed, found, of)
        before, self._recorded = self._recorded, None
        if before is not None:
            self.engine.record_steps(False)
            if completed:
                self._plan_recorded(before, 2)
        if StepFindings.GAVE_UP in found:
            of.plan, of.refused = None, True
            self._known.pop(self._now, None)
        if not completed or of.coming is not None or of.refused:
            return found
        if StepFindings.ESCAPED in found and of.step is not None:
            self._plan_escaping(of)
        elif self._is_keyed and self._steps > 1:
            if StepFindings.WANTS_PLAN in found or self.doing is StepMode.WATCH:
                self._recorded = self._now
                self.engine.record_steps(True)
        elif StepFindings.WANTS_PLAN in found and (of.equal >= self.watch or self.doing is StepMode.REPLAY):
            self._plan_recorded(self._now, 1)
        return found

    def _account(self, completed: bool, found: StepFindings, of: Key) -> None:
        now = self.reserved()
        if self.doing is StepMode.WATCH:
            self.watched += 1
            of.equal = of.equal + 1 if completed and StepFindings.HOT in found and of.equal else int(completed)
        if self._now not in self._known:
            self.reserved_before = max(self.reserved_before, now)
        elif self._settled:
            self.reserved_after = max(self.reserved_after, now)

    def _plan_recorded(self, key: int, age: int) -> None:
        """Of the key's recorded step of this age, with what the step after it has freed of it."""
        last = self.engine.records(age)
        if last is None or last.key != key or not len(last.nbytes):
            return
        step = watched_step(last, self.engine.records(age - 1) if age > 1 else None)
        before = self.engine.records(age + 1)
        if before is not None and before.key == key:
            earlier = watched_step(before, last)
            if earlier.same_sequence(step):
                step, last = earlier.merged(step), before
        of = self.keys[key]
        of.left = int(last.nbytes[(last.free_steps == 1) & ~step.escaping].sum())
        self._plan(of, step)

    def _plan_escaping(self, of: Key) -> None:
        assert of.step is not None
        step, freed, escaping = of.step, of.step.freed.copy(), self.engine.escaping(self._now)
        freed[escaping] = NEVER
        if of.plan is None or np.array_equal(freed, step.freed):
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


def watched_step(records: StepRecords, following: StepRecords | None) -> WatchedStep:
    """The step as plans are made of it. A block is not free before its own request; one that is freed after more requests than a
    step has, in a longer one, is as one that is not. Nor are those free for a plan that the next step, of another key, has kept for
    more than a half of its requests: in a shorter one, they would lie where it wants to put others."""
    freed = records.freed_before_request(following)
    most = 2 * len(freed)
    if following is not None and following.key != records.key:
        most = min(most, len(freed) + len(following.nbytes) // 2)
    unknown = (freed == NEVER) | (freed > most)
    freed = np.where(unknown, NEVER, np.maximum(freed, np.arange(len(freed)) + 1))
    return WatchedStep(records.nbytes, records.streams, records.threads, freed)
