# SPDX-License-Identifier: Apache-2.0
"""What came of planned memory, in the engine's counts."""

from __future__ import annotations

from collections.abc import Sequence

from memc.replay import Fallbacks, ReplayReport
from memc.replay.engine import Cause, Statistics, StepMode

from .planner import Planner

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


def report_of(planners: Sequence[Planner], notes: Sequence[str]) -> ReplayReport:
    """Of all devices together. Steps are those of the device that has most."""
    statistics = [planner.engine.statistics() for planner in planners]
    fallbacks = {}
    for cause in Cause:
        counted = [each for each in statistics if each.counts[cause]]
        if counted:
            count = sum(each.counts[cause] for each in counted)
            fallbacks[_NAMES[cause]] = Fallbacks(count, first_of(counted[0], cause))
    plans = [of.plan for planner in planners for of in planner.keys.values() if of.plan is not None]
    used = [planner for planner in planners if planner.doing is StepMode.REPLAY]
    coming = any(of.coming is not None for planner in planners for of in planner.keys.values())
    state = (
        "replay"
        if used
        else "plan"
        if coming
        else "watch"
        if any(p.doing is StepMode.WATCH for p in planners)
        else "pass"
    )
    return ReplayReport(
        state=state,
        steps=max((each.steps for each in statistics), default=0),
        watched_steps=max((planner.watched for planner in planners), default=0),
        replayed_steps=max((each.replayed for each in statistics), default=0),
        requests=sum(each.requests for each in statistics),
        hits=sum(each.hits for each in statistics),
        native=sum(each.planned_native for each in statistics),
        fallbacks=fallbacks,
        plans=sum(each.plans for each in statistics),
        replans=sum(each.replans for each in statistics),
        arena_bytes=sum(each.arena_bytes for each in statistics),
        lower_bound=sum(_largest_bound(planner) for planner in planners),
        planning_seconds=sum(planner.seconds for planner in planners),
        reserved_before=sum(planner.reserved_before for planner in planners) if plans else None,
        reserved_after=sum(planner.reserved_after for planner in planners) if used else None,
        note="; ".join(notes),
    )


def _largest_bound(planner: Planner) -> int:
    plans = [of.plan for of in planner.keys.values() if of.plan is not None]
    return max(plans, key=lambda plan: plan.arena_bytes).lower_bound if plans else 0
