# SPDX-License-Identifier: Apache-2.0
"""The plan of a job's hot step, made before the job runs, and what the job reserves with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memc.replay.plan import ReplayPlan
from memc.replay.plan_file import write_plan
from memc.replay.planner import make_plan

from .allocators import Allocator
from .events import EventList, Events, Kind
from .phantom.description import properties
from .replay import Job
from .steps import HotStep, hot_step


@dataclass(frozen=True)
class StepPlan:
    """What a plan places, and what it saves. Sizes in bytes."""

    path: str
    sequence: str
    """The hash of the step's requests."""
    requests: int
    placed: int
    """Blocks with a place in the arena; `cyclic` of them live from one step into the next."""
    cyclic: int
    native: int
    """Blocks that live longer, which the framework's allocator serves, and their bytes."""
    native_bytes: int
    arena_bytes: int
    lower_bound: int
    gap_percent: float
    reserved_bytes: int
    """By the framework's allocator at most, in a step that runs in its plan: what lives longer than a step, as if it had been asked for
    in a fresh process, and the arena."""
    compact_reserved_bytes: int
    """The same with all that lives throughout the step in one block, too."""
    native_reserved_bytes: int
    """What it reserves at most until the end of the same step without a plan."""
    seconds: float
    """Of planning."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self)) | {"gap_percent": round(self.gap_percent, 4), "seconds": round(self.seconds, 4)}


def step_plan(job: Job, allocator: Allocator, path: str | Path, solver: str = "auto") -> StepPlan:
    """Plan the last step that the step after it repeats, and write the plan to `path`.

    Raises InvalidError where no step is hot, or the file cannot be written.
    """
    hot = hot_step(job.events, job.name)
    device = str(properties(job.gpu)["name"]) if job.gpu_named else ""
    plan = make_plan(hot.watched, solver=solver, torch_version=job.recording.torch_version, device_kind=device)
    write_plan(plan, path)
    reserved = reserved_with(job, allocator, hot, plan)
    return StepPlan(
        path=str(path),
        sequence=plan.sequence_hash,
        requests=len(plan),
        placed=int(plan.planned.sum()),
        cyclic=int(plan.cyclic.sum()),
        native=int((~plan.planned).sum()),
        native_bytes=plan.native_bytes,
        arena_bytes=plan.arena_bytes,
        lower_bound=plan.lower_bound,
        gap_percent=plan.gap_percent,
        reserved_bytes=reserved.planned,
        compact_reserved_bytes=reserved.compact,
        native_reserved_bytes=reserved.native,
        seconds=plan.seconds,
    )


@dataclass(frozen=True)
class Reserved:
    """Bytes that the framework's allocator reserves at most, as `StepPlan` has them."""

    planned: int
    compact: int
    native: int


def reserved_with(job: Job, allocator: Allocator, hot: HotStep, plan: ReplayPlan) -> Reserved:
    """With the plan, also with what lives longer in one block, and without the plan. Raises InvalidError for events that cannot be."""

    def peak(compact: bool) -> int:
        events = arena_events(job.events, hot, plan, compact)
        return replace(job, recording=replace(job.recording, events=events)).simulate(allocator).reserved.peak

    native = job.simulate(allocator, series=True).reserved_after[: hot.end]
    return Reserved(peak(False), peak(True), int(native.max(initial=0)))


def arena_events(events: Events, hot: HotStep, plan: ReplayPlan, compact: bool = False) -> Events:
    """The step after the hot one as a job of its own, with the plan: what is live before it and not in the arena, in the order in
    which it was asked for; the arena, as one block; and what the step asks for that has no place there. `compact`: what lives
    throughout the step lies in one block, too. That the job gives memory back to the device is left out."""
    in_arena = set(hot.blocks[plan.planned].tolist()) | set(hot.repeated[plan.planned].tolist())
    rows = list(
        zip(*(column.tolist() for column in (events.kinds, events.blocks, events.nbytes, events.streams, events.pools)))
    )
    before, inside = rows[: hot.begin], rows[hot.begin : hot.end]
    gone = {row[1] for row in before if row[0] in _FREES}
    ending = {row[1] for row in inside if row[0] in _FREES}
    found = EventList()
    numbers: dict[int, int] = {}
    resident = 0
    for kind, block, nbytes, stream, pool in before:
        if kind == Kind.ALLOCATE and block not in gone and block not in in_arena:
            if compact and block not in ending:
                resident += -(-nbytes // plan.alignment) * plan.alignment
            else:
                numbers[block] = found.allocate(nbytes, stream, pool)
    for nbytes in filter(None, (resident, plan.arena_bytes)):
        found.allocate(nbytes)
    for kind, block, nbytes, stream, pool in inside:
        if kind == Kind.ALLOCATE and block not in in_arena:
            numbers[block] = found.allocate(nbytes, stream, pool)
        elif kind in _FREES and block in numbers:
            found.free(numbers[block])
        elif kind == Kind.RECORD_STREAM and block in numbers:
            found.record_stream(numbers[block], stream)
    return found.events()


_FREES = (Kind.FREE, Kind.COMPLETE_FREE)
