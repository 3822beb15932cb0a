# SPDX-License-Identifier: Apache-2.0
"""What a compilation says about weights that lie on the host and are copied in while ops run."""

from __future__ import annotations

from dataclasses import dataclass

from memc.ir.copies import host_params
from memc.ir.core import Function, Role
from memc.ir.liveness import lifetimes, live_bytes
from memc.ir.sizes import format_size
from memc.ir.spaces import ARENA
from memc.report.timeline import Timeline


@dataclass(frozen=True)
class StreamedWeight:
    """A weight on the host."""

    weight: str
    type: str
    bytes: int
    windows: int
    """How many times a run copies it in, each time for as long as ops need it."""
    waiting_seconds: float
    """How long ops wait for its copies."""


@dataclass(frozen=True)
class Streamed:
    """The weights on the host. Times are those of the cost model."""

    weights: list[StreamedWeight]
    """In the order in which they are copied in."""
    bytes: int
    """That they take on the host."""
    copied_bytes: int
    """That a run copies in for them."""
    windows: int
    windows_bytes: int
    """The most that they take of the arena at one time."""
    resident: int
    """How many weights stay on the device."""
    resident_seconds: float
    """What a run would take if all did, and nothing else were copied or recomputed either."""

    @property
    def summary(self) -> str:
        """What is streamed, in a line."""
        count, all_weights = len(self.weights), len(self.weights) + self.resident
        what = f"{count} of {all_weights} weights {'lies' if count == 1 else 'lie'} on the host"
        return f"{what}, {format_size(self.bytes)} in all, and {'is' if count == 1 else 'are'} copied in while ops run"


def streamed_weights(function: Function, time: Timeline, once: int, alignment: int) -> Streamed | None:
    """The streamed weights of a planned function; None if it has none. `once`: picoseconds of one run of every op."""
    on_host = {p for p in host_params(function) if p.role is Role.WEIGHT}
    if not on_host:
        return None
    copies = [copy for copy in time.copies if copy.source in on_host]
    order = list(dict.fromkeys(copy.source for copy in copies))
    found = []
    for weight in order:
        its = [copy for copy in copies if copy.source is weight]
        waited = sum(copy.waited for copy in its) / 1e12
        found.append(StreamedWeight(weight.name, str(weight.type), weight.type.nbytes, len(its), waited))
    roots = {copy.op.results[0].root for copy in copies}
    windows = [life for life in lifetimes(function, ARENA) if life.root in roots]
    return Streamed(
        weights=found,
        bytes=sum(each.bytes for each in found),
        copied_bytes=sum(copy.bytes for copy in copies),
        windows=len(copies),
        windows_bytes=max(live_bytes(windows, len(function.ops), alignment)),
        resident=sum(p not in on_host for p in function.params_of(Role.WEIGHT)),
        resident_seconds=once / 1e12,
    )
