# SPDX-License-Identifier: Apache-2.0
"""What a compilation says about copies to the host: how busy the link is, which ops wait, and what became of each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from memc.ir.copies import is_copy
from memc.ir.module import Module
from memc.ir.sizes import format_size
from memc.passes.manager import PassManager
from memc.passes.offload.link_rates import link_of
from memc.passes.offload.offload import Offload
from memc.passes.recompute.choices import Copied, Copies, Recomputation
from memc.passes.recompute.rematerialize import costs_of
from memc.report.decisions import UNBROKEN, UNREAD, Decision, decisions_of
from memc.report.lane_use import LaneUse, Stall, stalls_of, use_of
from memc.report.streamed import Streamed, streamed_weights
from memc.report.timeline import timeline


@dataclass(frozen=True)
class Offloaded:
    """Copies to the host and back, by which a memory budget is kept beside recomputation. Times are those of the cost model,
    percentages of time of one run of every op."""

    verdict: str
    """In one line, what is copied, or why nothing is."""
    link: str
    """Whose rates were counted on."""
    link_origin: str
    """Where they are from, in words."""
    copies: int
    """Of both directions."""
    offloaded_bytes: int
    prefetched_bytes: int
    waiting_percent: float
    """How long ops wait for copies."""
    recompute_only_percent: float | None
    """What recomputation alone would add, addresses not tried; None if it does not keep the budget, or weights are streamed."""
    copies_only_percent_bound: float
    """What copies alone would add at least, in this order of the ops."""
    makespan_seconds: float
    """Of a run, copies included."""
    lanes: Mapping[str, LaneUse]
    """By direction, `out` and `in`."""
    stalls: list[Stall]
    """The ops that wait longest."""
    values: list[Decision]
    """What became of each value that is large enough to be copied, largest first; empty if the budget is kept without."""
    streamed: Streamed | None
    """Weights that lie on the host; None if none do."""
    small_values: int
    """How many values are below the least copy, of all results of ops."""


def offloaded(module: Module, manager: PassManager, found: Recomputation) -> Offloaded | None:
    """The copies of a planned module. None where the pass did not ask for any."""
    item = next((item for item in manager.passes if isinstance(item, Offload)), None)
    if item is None:
        return None
    by = (found.copied and found.copied.by) or _counted_on(item, module)
    copied = found.copied or Copied(by.link, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)  # The budget is kept without.
    function = module.main
    costs = costs_of(module, item.target, item.profile)
    time = timeline(function, costs.cost, by.lanes)
    once = max(1, sum(costs.cost(run.op) for run in time.runs if not run.op.plan.recompute))
    decided: list[Decision] = []
    if copied.count or found.repeats:
        how = (by.lanes, copied.immovable, by.least, module.target.alignment, item.policy)
        decided = decisions_of(function, time, costs.cost, *how)
    alone = None if copied.alone is None else round(100 * copied.alone, 4)
    streamed = streamed_weights(function, time, once, module.target.alignment)
    return Offloaded(
        verdict=_verdict(found, copied, by, decided, streamed),
        link=copied.link,
        link_origin=by.origin,
        copies=copied.count,
        offloaded_bytes=copied.bytes_out,
        prefetched_bytes=copied.bytes_in,
        waiting_percent=round(100 * copied.waiting, 4),
        recompute_only_percent=alone,
        copies_only_percent_bound=round(100 * copied.alone_at_least, 4),
        makespan_seconds=time.makespan / 1e12,
        lanes={"out": use_of(time, "out", by.lanes.out), "in": use_of(time, "in", by.lanes.back)},
        stalls=stalls_of(time, once),
        values=decided,
        streamed=streamed,
        small_values=sum(
            value.type.nbytes < by.least
            for op in function.ops
            if not op.plan.recompute and not is_copy(op)
            for value in op.results
        ),
    )


def _counted_on(item: Offload, module: Module) -> Copies:
    """What the options of the pass say of links."""
    link = link_of(item.link, module.target, item.profile)
    return Copies(link.name, link.lanes(), item.least_copy, item.host_budget, link.origin)


def _verdict(
    found: Recomputation, copied: Copied, by: Copies, decided: list[Decision], streamed: Streamed | None
) -> str:
    if streamed is not None and not copied.bytes_out:
        return streamed.summary
    if copied.count:
        moved = [each for each in decided if each.decision.startswith("offloaded")]
        values = "1 value is" if len(moved) == 1 else f"{len(moved)} values are"
        beside = "" if streamed is None else f"{streamed.summary}; "
        return f"{beside}{values} copied to the host and back, {format_size(copied.bytes_out)} in all"
    if not found.repeats and found.states is not None and found.states.states:
        return "no value is copied: the budget is kept with states on the host"
    if not found.repeats:
        return "nothing is copied: the budget is kept without"
    if found.policy != "auto":
        return f"nothing is copied: the policy {found.policy} moves no value of this program"
    if by.host_budget is not None and by.host_budget < by.least:
        return f"nothing is copied: the host budget is {format_size(by.host_budget)}"
    results = [each for each in decided if each.is_result]
    if all(each.value in copied.immovable or each.reason in (UNREAD, UNBROKEN) for each in results):
        reasons = Counter(copied.immovable[each.value] for each in results if each.value in copied.immovable)
        why = f"most often, it {reasons.most_common(1)[0][0]}" if reasons else f"none has {format_size(by.least)}"
        return f"nothing is copied: no value that is not used for a while may be: {why}"
    return f"nothing is copied: recomputation alone is as quick over the link {by.link}"
