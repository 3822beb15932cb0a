# SPDX-License-Identifier: Apache-2.0
"""How busy a lane of copies is, and which ops wait for it."""

from __future__ import annotations

from dataclasses import dataclass

from memc.report.timeline import Copy, Timeline
from memc.solvers.lane_clock import Way
from memc.solvers.offload import FULL_SPEED, Lane

STALLS = 5
"""How many ops that wait are reported."""


@dataclass(frozen=True)
class LaneUse:
    """Copies of one direction."""

    copies: int
    bytes: int
    busy_percent: float
    """While its bytes move, in percent of the whole run."""
    bandwidth: float
    """Bytes a second that were counted on, while nothing moves the other way."""
    shared: float
    """While something does."""
    latency: float
    """Seconds that each copy takes beside those of its bytes."""
    sync: float
    """Seconds that each copy takes ops."""
    drag: float
    """By how much ops are slower while its bytes move, as a share."""


@dataclass(frozen=True)
class Stall:
    """An op that waits for a copy."""

    op: str
    """Its name; `return` for what the end of the run waits for."""
    result: str
    """The name of its first result; empty for the end."""
    index: int
    """Of the op among the function's."""
    waits_for: str
    """The value whose copy takes longest of those that it waits for."""
    direction: str
    """`out` or `in`."""
    seconds: float
    percent: float
    """Of one run of every op."""


def use_of(time: Timeline, way: Way, lane: Lane) -> LaneUse:
    """What a timeline has of a lane."""
    copies = [copy for copy in time.copies if copy.way == way]
    busy = sum(copy.duration for copy in copies)
    rate = 2**20 / lane.per_mib * 1e12
    return LaneUse(
        copies=len(copies),
        bytes=sum(copy.bytes for copy in copies),
        busy_percent=round(100 * busy / time.makespan, 4) if busy else 0.0,
        bandwidth=rate,
        shared=rate * lane.shared / FULL_SPEED,
        latency=lane.latency / 1e12,
        sync=lane.sync / 1e12,
        drag=lane.drag / FULL_SPEED,
    )


def stalls_of(time: Timeline, once: int) -> list[Stall]:
    """The ops of a timeline that wait longest. `once`: picoseconds of one run of every op."""
    found = []

    def stall(op: str, result: str, index: int, copy: Copy, waited: int) -> None:
        times = (waited / 1e12, round(100 * waited / once, 4))
        found.append(Stall(op, result, index, copy.value.name, copy.way, *times))

    for run in time.stalls(STALLS):
        assert run.waits_for is not None
        name = run.op.name if run.op.region is None else "+".join(op.name for op in run.op.region.ops)
        stall(name, run.op.results[0].name, run.index, run.waits_for, run.waited)
    if time.last is not None:
        stall("return", "", len(time.starts), time.last, time.makespan - time.ran)
    return sorted(found, key=lambda each: -each.seconds)[:STALLS]
