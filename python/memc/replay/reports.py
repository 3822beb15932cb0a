# SPDX-License-Identifier: Apache-2.0
"""What came of planned memory, in the engine's counts."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.errors import CheckError

from .driver import Driver
from .engine import Cause, Statistics, StepMode
from .report import Fallbacks, ReplayReport

_NAMES = {
    Cause.UNPLANNED: "unplanned",
    Cause.LARGER: "larger than planned",
    Cause.PAST_END: "past the plan's end",
    Cause.BUSY: "planned bytes in use",
    Cause.STREAM: "on an unknown stream",
    Cause.EVENT_FAILED: "without an event",
    Cause.NO_ARENA: "without an arena",
    Cause.OUT_OF_ORDER: "out of order",
    Cause.SMALLER: "smaller than planned",
}


def first_of(statistics: Statistics, cause: Cause) -> str:
    """Where the first request of a cause was."""
    first = statistics.first[cause]
    planned = f"{first.planned_bytes:,} bytes by plan" if first.planned_bytes else "no more requests by plan"
    return (
        f"step {first.step}, request {first.request}: expected {planned}, got {first.nbytes:,} bytes, {_NAMES[cause]}"
    )


def report_of(drivers: Sequence[Driver], notes: Sequence[str]) -> ReplayReport:
    """Of all devices together. Steps are those of the device that has most."""
    statistics = [driver.engine.statistics() for driver in drivers]
    fallbacks = {}
    for cause in Cause:
        counted = [each for each in statistics if each.counts[cause]]
        if counted:
            count = sum(each.counts[cause] for each in counted)
            fallbacks[_NAMES[cause]] = Fallbacks(count, first_of(counted[0], cause))
    plans = [of.plan for driver in drivers for of in driver.keys.values() if of.plan is not None]
    warnings = [line for driver in drivers if (line := driver.engine.warning())]
    used = [driver for driver in drivers if driver.doing is StepMode.REPLAY]
    coming = any(of.coming is not None for driver in drivers for of in driver.keys.values())
    state = (
        "replay"
        if used
        else "plan"
        if coming
        else "watch"
        if any(each.doing is StepMode.WATCH for each in drivers)
        else "pass"
    )
    return ReplayReport(
        state=state,
        steps=max((each.steps for each in statistics), default=0),
        watched_steps=max((driver.watched for driver in drivers), default=0),
        replayed_steps=max((each.replayed for each in statistics), default=0),
        requests=sum(each.requests for each in statistics),
        hits=sum(each.hits for each in statistics),
        native=sum(each.planned_native for each in statistics),
        fallbacks=fallbacks,
        plans=sum(each.plans for each in statistics),
        from_gaps=sum(each.from_gaps for each in statistics),
        replans=sum(each.replans for each in statistics),
        arena_bytes=sum(each.arena_bytes for each in statistics),
        lower_bound=sum(_largest_bound(driver) for driver in drivers),
        planning_seconds=sum(driver.seconds for driver in drivers),
        reserved_before=sum(driver.reserved_before for driver in drivers) if plans else None,
        reserved_after=sum(driver.reserved_after for driver in drivers) if used else None,
        note="; ".join([*(note for driver in drivers for note in driver.notes), *notes, *warnings]),
    )


def _largest_bound(driver: Driver) -> int:
    plans = [of.plan for of in driver.keys.values() if of.plan is not None]
    return max(plans, key=lambda plan: plan.arena_bytes).lower_bound if plans else 0


class StrictCheck:
    """Of one step: that each request was served as planned."""

    def __init__(self, drivers: Sequence[Driver]) -> None:
        """At the step's begin."""
        self._drivers = drivers
        self._before = [driver.engine.statistics().counts for driver in drivers]

    def done(self, what: str) -> None:
        """At its end. Raises CheckError that names the first request served otherwise."""
        for driver, before in zip(self._drivers, self._before):
            statistics = driver.engine.statistics()
            for cause, count in statistics.counts.items():
                if count > before[cause]:
                    raise CheckError(f"{what}: strict: {first_of(statistics, cause)}")
