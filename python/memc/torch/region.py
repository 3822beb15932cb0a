# SPDX-License-Identifier: Apache-2.0
"""A region of a program in which steps get their memory as planned."""

from __future__ import annotations

import atexit
import os
from collections.abc import Hashable
from functools import partial
from pathlib import Path
from types import TracebackType

import torch

from memc.ir.errors import UnsupportedError, UsageError
from memc.replay import ReplayPlan, ReplayReport, read_plan, write_plan
from memc.replay.driver import Driver
from memc.replay.engine import Engine, StepMode
from memc.replay.reports import StrictCheck, report_of
from memc.replay.steps import Interruption, Step

from . import door
from .compaction import compact, end_pools, has_private_pools

WHAT = "planned_memory"

MOVED = 3 * 2**21
"""Bytes that moved tensors may take beside their own: of their last segments."""

_open: list[PlannedMemory] = []
"""The region that is open in this process; there is one at most, as there is one allocator."""


def open_region() -> PlannedMemory | None:
    """The region that is open."""
    return _open[0] if _open else None


class PlannedMemory:
    """Serves PyTorch's requests for CUDA memory from an arena at planned offsets, step after step (Sekiyama et al. 2018).

    In a `with` block; each training step is a `with planned.step()` in it. The first steps are watched, while PyTorch's allocator
    serves them as ever; once `watch` steps in a row have asked for the same blocks, a plan is made on a thread of its own, and from the next
    step on blocks come from an arena of the plan's size. A request that is not as planned gets other bytes, never bytes in use.

    Args:
        plan: a file with a plan (`save`), which is followed from the first step on.
        key: of the steps that name none. Steps of unlike sequences, such as those of other batch sizes, should have keys of their own.
        watch: equal steps in a row before a plan is made, at least 2.
        strict: raise CheckError at the end of a step in which a request was not served as planned (for tests).
        compact: whether live tensors may be moved together (see `compact`) where the arena would otherwise take more memory than the
            allocator did without it.
    """

    def __init__(
        self,
        plan: str | Path | None = None,
        *,
        key: Hashable = None,
        watch: int = 2,
        strict: bool = False,
        compact: bool = True,
    ) -> None:
        if type(watch) is not int or watch < 2:
            raise UsageError(f"{WHAT}: watch: expected a number of steps from 2, got {watch!r}")
        self._plan = plan
        self._key = key
        self._watch = watch
        self._strict = strict
        self._may_compact = compact
        self._keys: dict[Hashable, int] = {}
        self._drivers: dict[int, Driver] = {}
        """By device."""
        self._in_step = False
        self._strict_check: StrictCheck | None = None
        self._notes: list[str] = []
        self._report: ReplayReport | None = None

    def __enter__(self) -> PlannedMemory:
        """Raises UsageError within another region, UnsupportedError where PyTorch's own allocator is not in use."""
        if _open:
            raise UsageError(
                f"{WHAT}: expected no other region that is open, got one within another; use planned.step(key=...)"
            )
        if not torch.cuda.is_available():
            raise UnsupportedError(f"{WHAT}: expected a CUDA device, got none that PyTorch can use")
        if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
            raise UnsupportedError(
                f"{WHAT}: expected PyTorch's caching allocator, got PYTORCH_NO_CUDA_MEMORY_CACHING; unset it"
            )
        torch.cuda.init()
        reason = door.install()
        if reason:
            raise UnsupportedError(
                f"{WHAT}: expected PyTorch's own CUDA allocator, got one that {reason}; "
                "leave out backend: of PYTORCH_CUDA_ALLOC_CONF and other allocators"
            )
        _open.append(self)
        self._report = None
        self._notes.clear()
        atexit.register(door.abandon)
        try:
            self._drivers = {device: self._driver(device) for device in range(torch.cuda.device_count())}
            if self._plan is not None:
                self._load(self._plan)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def step(self, key: Hashable = None) -> Step:
        """A `with` block that is one step: what lies between two calls of the optimizer, or all that belongs to it.

        Raises UsageError within another step, outside the region's `with` block, and while a CUDA graph is captured.
        """
        return Step(self, self._key if key is None else key, key is not None)

    @property
    def in_step(self) -> bool:
        """Whether a step is under way."""
        return self._in_step

    def interrupt(self) -> Interruption:
        """A `with` block that is no part of the step around it, such as an evaluation."""
        return Interruption(self._engines)

    def compact(self) -> int:
        """Move live tensors out of segments that PyTorch's allocator keeps for them, and give those back. Returns the bytes given back.

        Their bytes are copied beside each other; all views see the new place. Addresses taken before, such as those in captured CUDA
        graphs, are not right any more. Raises UsageError within a step.
        """
        self._needs_open()
        if self._in_step:
            raise UsageError(f"{WHAT}: compact: expected a moment between steps, got one within a step")
        given_back = 0
        for device in self._drivers:
            given_back += compact(device)
            end_pools(device)
        return given_back

    def wait(self) -> None:
        """Until plans that are being made are ready for the next step."""
        for driver in self._drivers.values():
            driver.wait()

    def save(self, path: str | Path, key: Hashable = None) -> None:
        """Write the plan of a key to a file. Raises UsageError without one, InvalidError where the file cannot be written."""
        number = self._keys.get(self._key if key is None else key, -1)
        for driver in self._drivers.values():
            of = driver.keys.get(number)
            if of is not None and of.plan is not None:
                write_plan(of.plan, path)
                return
        raise UsageError(f"{WHAT}: save: expected a key with a plan, got {key!r}, whose steps are not planned (yet)")

    def report(self) -> ReplayReport:
        """Of all steps so far."""
        if self._report is not None:
            return self._report
        self._needs_open()
        return report_of(list(self._drivers.values()), self._notes)

    def _needs_open(self) -> None:
        if self not in _open:
            raise UsageError(f"{WHAT}: expected a step within the region's `with` block, got one outside of it")

    def _load(self, path: str | Path) -> None:
        device = torch.cuda.current_device()
        driver = self._drivers[device]
        plan = read_plan(path, torch_version=driver.torch_version, device_kind=driver.device_kind)
        driver.give(self._number(self._key), plan)

    def _number(self, key: Hashable) -> int:
        return self._keys.setdefault(key, len(self._keys))

    def begin_step(self, key: Hashable, is_keyed: bool) -> None:
        """Of a step (`step`)."""
        self._needs_open()
        if self._in_step:
            raise UsageError(f"{WHAT}: step: expected no step within another, got one; give each its own `with` block")
        if torch.cuda.is_current_stream_capturing() or any(map(door.pool_open, self._drivers)):
            raise UsageError(
                f"{WHAT}: step: expected no capture of a CUDA graph around it, got one; capture within the step"
            )
        door.lead_step()
        number = self._number(key)
        drivers = list(self._drivers.values())
        for driver in drivers:
            driver.prepare_step(number, is_keyed)
        for driver in drivers:  # Only now: what prepares one device may ask another for memory.
            driver.begin_step()
        if self._strict:
            self._strict_check = StrictCheck(drivers)
        self._in_step = True

    def _driver(self, device: int) -> Driver:
        return Driver(
            Engine(door.engine_address(device)),
            torch.cuda.get_device_name(device),
            torch.__version__,
            f"cuda:{device}: ",
            self._watch,
            fits=partial(self._fits, device),
            settle=partial(self._settle, device),
            reserved=lambda: door.reserved(device)[0],
        )

    def _engines(self) -> list[Engine]:
        self._needs_open()
        return [driver.engine for driver in self._drivers.values()]

    def _fits(self, device: int, plan: ReplayPlan, left: int) -> bool:
        """Whether the plan's arena leaves what is reserved no larger than it was, after unused memory, and if need be live tensors, made room.

        The arena is made when the bytes that the step before has `left` are freed. It is refused before anything is moved: a layout
        of moved tensors may be worse than the allocator's own for steps without an arena.
        """
        torch.cuda.empty_cache()
        driver = self._drivers[device]
        allowed = driver.reserved_before
        more = plan.arena_bytes - max(driver.engine.statistics().arena_bytes, left)
        reserved, in_use = door.reserved(device)
        if not allowed or reserved + more <= allowed:
            return True
        if self._moves() and in_use + more + MOVED <= allowed:
            compact(device, allowed)
            end_pools(device)
            return True
        driver.notes.append(
            f"cuda:{device}: not replayed: an arena of {plan.arena_bytes:,} B in place of {plan.arena_bytes - more:,} B, beside other memory, "
            f"would take more than the {allowed:,} B without it"
        )
        return False

    def _settle(self, device: int) -> None:
        """Gives back what the steps before have left, and what has been moved and is gone by now."""
        torch.cuda.empty_cache()
        driver = self._drivers[device]
        if driver.doing is StepMode.REPLAY and self._moves():
            compact(device, max(driver.reserved_before, door.reserved(device)[0]))
        end_pools(device)
        torch.cuda.empty_cache()

    def _moves(self) -> bool:
        return self._may_compact and not has_private_pools()

    def end_step(self, completed: bool) -> None:
        """Of the step that was begun. Raises CheckError where `strict` says so."""
        self._in_step = False
        for driver in self._drivers.values():
            driver.end_step(completed)
        if self._strict_check is not None and completed:
            self._strict_check.done(WHAT)

    def _close(self) -> None:
        if self in _open:
            if self._drivers:
                self._report = self.report()
            for device, driver in self._drivers.items():
                driver.close()
                end_pools(device)
            _open.remove(self)
            reason = door.uninstall()
            if reason:
                self._notes.append(f"another allocator, that {reason}, is in front of this one, which stays behind it")
        atexit.unregister(door.abandon)
