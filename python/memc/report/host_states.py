# SPDX-License-Identifier: Apache-2.0
"""What a compilation says about optimizer states that lie on the host between steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from memc.ir.module import Module
from memc.ir.sizes import format_size
from memc.passes.offload.state_finding import StatesOnHost
from memc.report.lane_use import LaneUse, Stall, stalls_of, use_of
from memc.report.timeline import timeline


@dataclass(frozen=True)
class HostStates:
    """States on the host, and what that takes. Times are those of the cost model, percentages of time of one run of every op."""

    states: list[str]
    """Their names."""
    bytes: int
    """Of them."""
    copied_in_bytes: int
    """That a step copies into the arena."""
    copied_out_bytes: int
    """That a step writes back."""
    groups: int
    """Of updates that share the places where ops and copies wait for each other."""
    window_bytes: int
    """The most bytes of states in the arena at one time."""
    added_percent: float
    """By how much longer a step takes than by the same plan of values with these states on the device."""
    waiting_percent: float
    """How long ops wait for copies, those of values too."""
    makespan_seconds: float
    """Of a step."""
    link: str
    """Whose rates were counted on."""
    link_origin: str
    """Where they are from, in words."""
    lanes: Mapping[str, LaneUse]
    """By direction, `out` and `in`; copies of values too."""
    stalls: list[Stall]
    """The ops that wait longest."""
    resident: Mapping[str, str]
    """Why other states stay on the device, by their names."""
    staying_bytes: int = 0
    """Of the states that lie in the arena while a step begins and ends, and on the host only in between."""

    @property
    def summary(self) -> str:
        """In a line: what lies on the host, or why nothing does."""
        if not self.states:
            reasons = Counter(self.resident.values()).most_common(1)
            if not reasons:
                return "no state lies on the host: there is none"
            why = reasons[0][0]
            return f"no state lies on the host: most often, {'it ' if why.startswith('is ') else ''}{why}"
        count = "1 state lies" if len(self.states) == 1 else f"{len(self.states)} states lie"
        stay = (
            f", of which {format_size(self.staying_bytes)} leave when the next step begins"
            if self.staying_bytes
            else ""
        )
        return f"{count} on the host between steps, {format_size(self.bytes)} in all{stay}"


def host_states(module: Module, found: StatesOnHost | None) -> HostStates | None:
    """Of a planned module. None where nothing asked for states on the host."""
    if found is None:
        return None
    lanes = found.how.lanes
    time = timeline(module.main, found.how.costs.cost, lanes)
    once = max(1, found.once)
    return HostStates(
        states=list(found.states),
        bytes=found.bytes,
        copied_in_bytes=found.bytes_in,
        copied_out_bytes=found.bytes_out,
        groups=found.groups,
        window_bytes=found.window,
        added_percent=round(100 * found.added / once, 4),
        waiting_percent=round(100 * time.waiting / once, 4),
        makespan_seconds=time.makespan / 1e12,
        link=found.how.link,
        link_origin=found.how.origin,
        lanes={"out": use_of(time, "out", lanes.out), "in": use_of(time, "in", lanes.back)},
        stalls=stalls_of(time, once),
        resident=dict(found.reasons),
        staying_bytes=found.staying,
    )
