# SPDX-License-Identifier: Apache-2.0
"""A region of a CuPy program in which steps get their memory as planned."""

from __future__ import annotations

import atexit
import gc
import importlib
import threading
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from memc.ir.errors import CheckError, UnsupportedError, UsageError
from memc.replay import Fallbacks, ReplayReport, read_plan, write_plan
from memc.replay.engine import Cause, Engine, Statistics, StepMode

from .calls import Allocator
from .plans import Plans

_WHAT = "memc.cupy.planned_memory"

_open: list[PlannedMemory] = []
"""The region that is open in this process: CuPy has one allocator."""


class PlannedMemory:
    """Serves what CuPy asks for on the current device from an arena at planned offsets, step after step (Sekiyama et al. 2018).

    In a `with` block; each step of the program is a `with planned.step()` in it. The first steps are watched, while CuPy's own
    allocator serves them: two in a row that ask for the same, or one of a key of its own. Then a plan is made on a thread of
    its own, and later steps are served from one arena. A request that is not as planned gets other bytes, never bytes in use.

    Args:
        plan: a file with a plan (`save`), which the steps without a key follow from the first one on.
        strict: raise CheckError at the end of a step in which a request was not served as planned (for tests).
    """

    def __init__(self, plan: str | Path | None = None, *, strict: bool = False) -> None:
        self._plan = plan
        self._strict = strict
        self._numbers: dict[Hashable, int] = {None: 0}
        self._allocator: Allocator | None = None
        self._report: ReplayReport | None = None
        self._mode = StepMode.PASS
        self._in_step = False
        self._watched = 0
        self._reserved: dict[StepMode, int] = {}

    def __enter__(self) -> PlannedMemory:
        """Raises UsageError within another region or `using_allocator`, UnsupportedError without CuPy or a device."""
        if _open:
            raise UsageError(f"{_WHAT}: expected no other region that is open, got one within another; use step(key)")
        try:
            self._cupy: Any = importlib.import_module("cupy")
        except ImportError as error:
            raise UnsupportedError(f"{_WHAT}: expected CuPy, got: {error}; install cupy-cuda13x") from None
        cuda = self._cupy.cuda
        try:
            device = cuda.runtime.getDevice()
            kind = cuda.runtime.getDeviceProperties(device)["name"]
        except cuda.runtime.CUDARuntimeError as error:
            raise UnsupportedError(f"{_WHAT}: expected a CUDA device, got: {' '.join(str(error).split())}") from None
        self._malloc = cuda.get_allocator()
        self._allocator = Allocator(self._cupy, self._malloc)
        self._engine = Engine(self._allocator.address)
        self._plans = Plans(self._engine, kind.decode() if isinstance(kind, bytes) else str(kind))
        if self._plan is not None:
            self._plans.have(0, read_plan(self._plan, device_kind=self._plans.device_kind))
        gc.collect()  # What waits for the collector would be freed in the midst of a watched step.
        try:
            cuda.set_allocator(self._allocator)
        except ValueError as error:
            self._allocator.close()
            raise UsageError(f"{_WHAT}: expected no cupy.cuda.using_allocator around it, got: {error}") from None
        atexit.register(self._allocator.abandon)
        _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._allocator is not None
        self._report = self.report()
        self._cupy.cuda.set_allocator(self._malloc)
        _open.remove(self)
        self._plans.close()
        atexit.unregister(self._allocator.abandon)
        self._allocator.close()

    def step(self, key: Hashable = None) -> Step:
        """A `with` block that is one step. Steps of unlike sequences, such as those of other lengths, have keys of their own."""
        return Step(self, key)

    def interrupt(self) -> Interruption:
        """A `with` block that is no part of the step around it, such as an evaluation."""
        return Interruption(self)

    def wait(self) -> None:
        """Until plans that are being made are ready for the next step."""
        self._plans.wait()

    def save(self, path: str | Path, key: Hashable = None) -> None:
        """Write the plan of a key to a file. Raises UsageError without one, InvalidError where it cannot be written."""
        of = self._plans.keys.get(self._numbers.get(key, -1))
        if of is None or of.plan is None:
            raise UsageError(
                f"{_WHAT}: save: expected a key with a plan, got {key!r}, whose steps are not planned (yet)"
            )
        write_plan(of.plan, path)

    def report(self) -> ReplayReport:
        """Of all steps so far."""
        if self not in _open:
            if self._report is None:
                raise UsageError(f"{_WHAT}: report: expected a region that was entered, got one that was not")
            return self._report
        found = self._engine.statistics()
        plans = [of.plan for of in self._plans.keys.values() if of.plan is not None]
        largest = max(plans, key=lambda plan: plan.arena_bytes, default=None)
        state = {StepMode.PASS: "pass", StepMode.WATCH: "watch", StepMode.REPLAY: "replay"}[self._mode]
        return ReplayReport(
            state=state,
            steps=found.steps,
            watched_steps=self._watched,
            replayed_steps=found.replayed,
            requests=found.requests,
            hits=found.hits,
            native=found.planned_native,
            fallbacks={
                cause.name.lower().replace("_", " "): Fallbacks(count, _first(found, cause))
                for cause, count in found.counts.items()
                if count
            },
            plans=found.plans,
            replans=found.replans,
            arena_bytes=found.arena_bytes,
            lower_bound=0 if largest is None else largest.lower_bound,
            planning_seconds=self._plans.seconds,
            reserved_before=self._reserved.get(StepMode.WATCH),
            reserved_after=self._reserved.get(StepMode.REPLAY),
            note=self._engine.warning(),
        )

    def _begin(self, key: Hashable) -> None:
        if self not in _open or self._in_step:
            got = "one within another" if self._in_step else "one outside of it"
            raise UsageError(f"{_WHAT}: step: expected a step of its own within the region's `with` block, got {got}")
        assert self._allocator is not None
        self._allocator.leader = threading.get_ident()
        self._now = self._numbers.setdefault(key, len(self._numbers))
        self._plans.prepare(self._now)
        if self._strict:
            self._before = self._engine.statistics().counts
        self._mode = self._engine.begin_step(self._now)
        self._watched += self._mode is StepMode.WATCH
        self._in_step = True

    def _end(self, completed: bool) -> None:
        self._in_step = False
        found = self._engine.end_step(completed)
        total = getattr(getattr(self._malloc, "__self__", None), "total_bytes", None)
        if total is not None:
            self._reserved[self._mode] = max(self._reserved.get(self._mode, 0), int(total()))
        if completed:
            self._plans.ended(self._now, self._mode, found)
        if self._strict and completed:
            now = self._engine.statistics()
            for cause, count in now.counts.items():
                if count > self._before[cause]:
                    raise CheckError(f"{_WHAT}: strict: {_first(now, cause)}")


def planned_memory(plan: str | Path | None = None, *, strict: bool = False) -> PlannedMemory:
    """A region with planned memory, for a `with` block; the arguments are those of `PlannedMemory`."""
    return PlannedMemory(plan, strict=strict)


def _first(found: Statistics, cause: Cause) -> str:
    """Where the first request of a cause was."""
    first = found.first[cause]
    planned = f"slot {first.slot} of {first.planned_bytes:,} bytes" if first.planned_bytes else "no more requests"
    what = cause.name.lower().replace("_", " ")
    return f"step {first.step}, request {first.request}: expected {planned}, got {first.nbytes:,} bytes: {what}"


class Step:
    """One step of a region."""

    def __init__(self, region: PlannedMemory, key: Hashable) -> None:
        self._region = region
        self._key = key

    def __enter__(self) -> Step:
        self._region._begin(self._key)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._region._end(kind is None)


class Interruption:
    """A part of a step that is not replayed."""

    def __init__(self, region: PlannedMemory) -> None:
        self._region = region

    def __enter__(self) -> Interruption:
        self._region._engine.interrupt()
        return self

    def __exit__(self, *_: object) -> None:
        self._region._engine.resume()
