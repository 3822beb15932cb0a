# SPDX-License-Identifier: Apache-2.0
"""The timeline of a plan in Chrome's trace format, for Perfetto or chrome://tracing: a lane of ops and one for each direction of
copies, and counters of the bytes that are live, in all and by role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memc.ir.core import Function, Op
from memc.ir.liveness import Lifetime, lifetimes, live_bytes
from memc.ir.module import Module
from memc.ir.spaces import ARENA, HOST
from memc.passes.manager import PassManager
from memc.passes.offload.link_rates import link_of
from memc.passes.offload.offload import Offload
from memc.passes.recompute.rematerialize import Rematerialize, costs_of
from memc.report.roles import storage_roles
from memc.report.timeline import Copy, Timeline, timeline
from memc.solvers.lane_clock import Way

Event = dict[str, Any]

THREADS: Mapping[Way | None, tuple[int, str]] = {
    None: (0, "ops"),
    "out": (1, "copies out"),
    "in": (2, "copies in"),
}
"""Numbers and titles of the lanes; None is that of the ops."""


def plan_trace(module: Module, pipeline: str) -> Event:
    """The trace of a planned module in the cost model with which the passes of `pipeline`, its text, have planned it."""
    time = timeline_of(module, pipeline)
    return {"traceEvents": events_of(module.main, time, module.target.alignment), "displayTimeUnit": "ms"}


def timeline_of(module: Module, pipeline: str, measured: str | None = None) -> Timeline:
    """The timeline of a planned module in the cost model with which the passes of `pipeline`, its text, have planned it, or with times
    `measured` in a file. Raises UsageError for a file that has none."""
    items = [item for item in PassManager.parse(pipeline).passes if isinstance(item, (Offload, Rematerialize))]
    profile = measured or (items[0].profile if items else None)
    costs = costs_of(module, items[0].target if items else None, profile)
    link = link_of(items[0].link if items and isinstance(items[0], Offload) else None, module.target, profile)
    return timeline(module.main, costs.cost, link.lanes())


def events_of(function: Function, time: Timeline, alignment: int, process: int = 0, title: str = "plan") -> list[Event]:
    """The events of a timeline, in microseconds."""
    found = [_named(process, 0, "process_name", title)]
    found += [_named(process, thread, "thread_name", name) for thread, name in THREADS.values()]
    found += [
        {**event, "pid": process}
        for event in (
            *_ops(time),
            *_copies(time),
            *_live(function, time, alignment),
            *_by_role(function, time, alignment),
        )
    ]
    return found


def _named(process: int, thread: int, what: str, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _complete_event(way: Way | None, name: str, category: str, begin: int, end: int, facts: Event) -> Event:
    times = {"ts": begin / 1e6, "dur": (end - begin) / 1e6}
    return {"name": name, "cat": category, "ph": "X", "tid": THREADS[way][0], **times, "args": facts}


def _ops(time: Timeline) -> Iterator[Event]:
    for run in time.runs:
        if run.waits_for is not None:
            yield _wait(run.waits_for, run.begin - run.waited, run.begin)
        facts = {"op": f"%{run.op.results[0].name}", "index": run.index, "recomputed": bool(run.op.plan.recompute)}
        yield _complete_event(None, _name(run.op), "op", run.begin, run.end, facts)
    if time.last is not None:
        yield _wait(time.last, time.ran, time.makespan)


def _wait(copy: Copy, begin: int, end: int) -> Event:
    facts = {"value": f"%{copy.value.name}", "direction": copy.way, "bytes": copy.bytes}
    return _complete_event(None, f"wait for %{copy.value.name}", "wait", begin, end, facts)


def _copies(time: Timeline) -> Iterator[Event]:
    idle = time.idle()
    for copy in time.copies:
        hidden = copy.duration - idle.within(copy.begin, copy.end)
        facts = {
            "value": f"%{copy.value.name}",
            "type": str(copy.value.type),
            "bytes": copy.bytes,
            "overlap_percent": round(100 * hidden / copy.duration, 2),
            "queued_us": (copy.begin - copy.issued) / 1e6,
            "waited_us": copy.waited / 1e6,
        }
        yield _complete_event(copy.way, f"%{copy.value.name}", f"copy {copy.way}", copy.begin, copy.end, facts)


def _live(function: Function, time: Timeline, alignment: int) -> Iterator[Event]:
    """How many bytes are live in the arena, and on the host, where that changes."""
    for space in (ARENA, HOST):
        lives = lifetimes(function, space)
        before = 0
        for begin, nbytes in zip(time.starts, live_bytes(lives, len(function.ops), alignment)):
            if nbytes != before:
                yield {"name": f"{space} bytes", "ph": "C", "tid": 0, "ts": begin / 1e6, "args": {"live": nbytes}}
            before = nbytes


def _by_role(function: Function, time: Timeline, alignment: int) -> Iterator[Event]:
    """How many bytes of the arena each role has, where that changes: one counter of several series, which are drawn stacked."""
    roles = storage_roles(function)
    lives: dict[str, list[Lifetime]] = {}
    for life in lifetimes(function):
        lives.setdefault(roles[life.root], []).append(life)
    steps = len(function.ops)
    live = {role: live_bytes(lives[role], steps, alignment) for role in sorted(lives)}
    before: dict[str, int] = {}
    for index, begin in enumerate(time.starts):
        now = {role: counts[index] for role, counts in live.items()}
        if now != before:
            yield {"name": f"{ARENA} bytes by role", "ph": "C", "tid": 0, "ts": begin / 1e6, "args": now}
        before = now


def _name(op: Op) -> str:
    return op.name if op.region is None else "+".join(inner.name for inner in op.region.ops)
