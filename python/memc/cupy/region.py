# SPDX-License-Identifier: Apache-2.0
"""A region of a CuPy program in which steps get their memory as planned."""

from __future__ import annotations

import atexit
import gc
import importlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from memc.ir.errors import UnsupportedError, UsageError
from memc.replay import ReplayReport, read_plan, write_plan
from memc.replay.driver import Driver
from memc.replay.engine import Engine
from memc.replay.reports import StrictCheck, report_of
from memc.replay.steps import Interruption, Step

from .calls import Allocator

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
        self._in_step = False
        self._strict_check: StrictCheck | None = None

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
        name = kind.decode() if isinstance(kind, bytes) else str(kind)
        # An arena is made when a step begins, not among its requests: that runs Python.
        self._driver = Driver(Engine(self._allocator.address), name, makes_at_begin=True, reserved=self._total)
        if self._plan is not None:
            self._driver.give(0, read_plan(self._plan, device_kind=name))
        gc.collect()  # What waits for the collector would be freed in the midst of a watched step.
        try:
            cuda.set_allocator(self._allocator.malloc)
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
        self._driver.close()
        atexit.unregister(self._allocator.abandon)
        self._allocator.close()

    def step(self, key: Hashable = None) -> Step:
        """A `with` block that is one step. Steps of unlike sequences, such as those of other lengths, have keys of their own."""
        return Step(self, key, key is not None)

    def interrupt(self) -> Interruption:
        """A `with` block that is no part of the step around it, such as an evaluation."""
        return Interruption(lambda: [self._driver.engine])

    def wait(self) -> None:
        """Until plans that are being made are ready for the next step."""
        self._driver.wait()

    def save(self, path: str | Path, key: Hashable = None) -> None:
        """Write the plan of a key to a file. Raises UsageError without one, InvalidError where it cannot be written."""
        of = self._driver.keys.get(self._numbers.get(key, -1))
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
        return report_of([self._driver], [])

    def begin_step(self, key: Hashable, is_keyed: bool) -> None:
        """Of a step (`step`)."""
        if self not in _open or self._in_step:
            got = "one within another" if self._in_step else "one outside of it"
            raise UsageError(f"{_WHAT}: step: expected a step of its own within the region's `with` block, got {got}")
        assert self._allocator is not None
        self._allocator.lead()
        if self._strict:
            self._strict_check = StrictCheck([self._driver])
        self._allocator.pause(True)
        try:
            self._driver.prepare_step(self._numbers.setdefault(key, len(self._numbers)), is_keyed)
            self._driver.begin_step()
        finally:
            self._allocator.pause(False)
        self._in_step = True

    def end_step(self, completed: bool) -> None:
        """Of the step that was begun. Raises CheckError where `strict` says so."""
        self._in_step = False
        self._driver.end_step(completed)
        if self._strict_check is not None and completed:
            self._strict_check.done(_WHAT)

    def _total(self) -> int:
        total = getattr(getattr(self._malloc, "__self__", None), "total_bytes", None)
        return 0 if total is None else int(total())


def planned_memory(plan: str | Path | None = None, *, strict: bool = False) -> PlannedMemory:
    """A region with planned memory, for a `with` block; the arguments are those of `PlannedMemory`."""
    return PlannedMemory(plan, strict=strict)
