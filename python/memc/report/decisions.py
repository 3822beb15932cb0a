# SPDX-License-Identifier: Apache-2.0
"""What became of each value under a memory budget, and why, as the finished function shows it: whether it was kept, recomputed,
copied to the host, or may not be copied at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from memc.ir.core import Function, Op, Role
from memc.ir.liveness import lifetimes, live_bytes
from memc.ir.spaces import HOST
from memc.report.origins import Life, lives_of
from memc.report.timeline import Timeline
from memc.solvers.offload import Lanes

Choice = Literal["kept", "recomputed", "offloaded", "offloaded and recomputed", "streamed", "none"]

FULL = 0.99
"""Which share of the peak makes a moment one that a value's bytes are missed at."""

UNREAD, UNBROKEN = "is not read", "is used by ops one after another"
"""Why values are kept that there is no time without."""

FIXED = {
    Role.INPUT: "is an input, which the caller holds",
    Role.WEIGHT: "is a weight, which stays on the device",
    Role.STATE: "is a state, which stays on the device",
    None: "is a parameter, which lies outside the arena",
}


@dataclass(frozen=True)
class Decision:
    """What became of a value."""

    value: str
    """Its name in the planned IR."""
    type: str
    bytes: int
    decision: Choice
    """`none`: it may not be copied, and is not recomputed."""
    reason: str
    is_result: bool
    """Whether an op makes it; parameters and constants lie outside the arena."""


def duration(picoseconds: int) -> str:
    """A time, for people."""
    for unit, one in (("s", 10**12), ("ms", 10**9)):
        if picoseconds >= one:
            return f"{picoseconds / one:.3g} {unit}"
    return f"{picoseconds / 10**6:.3g} us"


def decisions_of(
    function: Function,
    time: Timeline,
    cost: Callable[[Op], int],
    lanes: Lanes,
    immovable: Mapping[str, str],
    least: int,
    alignment: int,
    policy: str = "auto",
) -> list[Decision]:
    """Those of all values of at least `least` bytes, largest first. `immovable`: why values may not be copied, by name. `policy`: what
    decided, `auto` for the search."""
    lives = lifetimes(function)
    live = np.array([*live_bytes(lives, len(function.ops), alignment), 0])
    judge = _Judge(function, time, cost, lanes, immovable, live, {life.root.name for life in lives}, policy)
    found = [judge.of(life) for life in lives_of(function) if life.value.type.nbytes >= max(1, least)]
    scratch = [op.workspace for op in function.ops if op.workspace is not None and op.workspace.type.nbytes >= least]
    reason = "is a workspace, which lives during one op"
    found += [Decision(v.name, str(v.type), v.type.nbytes, "none", reason, False) for v in scratch]
    return sorted(found, key=lambda each: -each.bytes)


class _Judge:
    """Says what became of values."""

    def __init__(
        self,
        function: Function,
        time: Timeline,
        cost: Callable[[Op], int],
        lanes: Lanes,
        immovable: Mapping[str, str],
        live: np.ndarray[tuple[int], np.dtype[np.int64]],
        in_arena: set[str],
        policy: str,
    ) -> None:
        self.ops, self.cost, self.lanes, self.immovable = function.ops, cost, lanes, immovable
        self.live, self.peak, self.in_arena = live, int(live.max()), in_arena
        self.policy = policy
        self.starts = [*time.starts, time.makespan]
        self.copies = {copy.op: copy for copy in time.copies}
        self.busy = {"out": time.busy("out"), "in": time.busy("in")}

    def of(self, life: Life) -> Decision:
        value = life.value
        fixed = self._fixed(life)
        choice: Choice = "kept"
        if life.comes and value.role is Role.WEIGHT:
            choice, reason = "streamed", self._streamed(life)
        elif life.comes and (life.leaves or value.op is None):
            choice = "offloaded and recomputed" if life.runs else "offloaded"
            reason = self._moved(life)
        elif life.runs:
            choice, reason = "recomputed", self._recomputed(life, fixed)
        elif fixed is not None:
            choice, reason = "none", fixed
        else:
            reason = self._kept(life)
        return Decision(value.name, str(value.type), value.type.nbytes, choice, reason, value.op is not None)

    def _fixed(self, life: Life) -> str | None:
        """Why a value may not be copied."""
        value = life.value
        if value.op is None:
            return FIXED[value.role]
        if value.op.name == "constant":
            return "is a constant, which stays on the device"
        if value.name in self.immovable:
            return self.immovable[value.name]
        if value.root.name in self.in_arena:
            return None
        return "is a result of the function" if value.root.op is not None else "is written over a state"

    def _moved(self, life: Life) -> str:
        if life.value.op is None:
            return f"lies in the space {HOST} and is copied in {_times(len(life.comes))}"
        away = sum(self._between(max(n for n in (*life.uses, *life.leaves) if n < come), come) for come in life.comes)
        waits = sum(self.copies[self.ops[index]].waited for index in (*life.leaves, *life.comes))
        took = self._round_trip(life, len(life.comes))
        text = f"not needed for {duration(away)}; copies out and {_times(len(life.comes))} back take {duration(took)}"
        text += f", and ops wait {duration(waits)} for them" if waits else ""
        return text if not life.runs else f"{text}; {self._runs(life)}"

    def _streamed(self, life: Life) -> str:
        copies = [self.copies[self.ops[index]] for index in life.comes]
        waits = sum(copy.waited for copy in copies)
        took = duration(sum(copy.duration for copy in copies))
        text = f"lies in the space {HOST}; copied in {_times(len(copies))}, which takes {took}"
        return text + (f", and ops wait {duration(waits)} for it" if waits else "")

    def _runs(self, life: Life) -> str:
        cost = sum(self.cost(self.ops[index]) for index in life.runs)
        return f"running {_op_name(life.value.op)} again {_times(len(life.runs))} takes {duration(cost)}"

    def _recomputed(self, life: Life, fixed: str | None) -> str:
        gaps = [(max(u for u in life.uses if u < run), run) for run in life.runs]
        begin, end = max(gaps, key=lambda gap: self._between(*gap))
        if self.policy != "auto":
            return f"{self._runs(life)}; the policy {self.policy} does so"
        why = f"it {fixed}" if fixed is not None else self._no_copy(life, begin, end)
        if why is None:
            took, room = (duration(time) for time in (self._round_trip(life, 1), self._between(begin, end)))
            why = f"copies out and back would take {took} of the {room} without it"
        return f"{self._runs(life)}; {why}"

    def _kept(self, life: Life) -> str:
        gaps = [(a, b) for a, b in pairwise(life.uses) if self._between(a, b)]
        if len(life.uses) < 2:
            return UNREAD
        if not gaps:
            return UNBROKEN
        if self.policy != "auto":
            return f"the policy {self.policy} does not move it"
        begin, end = max(gaps, key=lambda gap: (self._most(*gap), self._between(*gap)))
        most = self._most(begin, end)
        if most < FULL * self.peak:
            return (
                f"not needed at the peak: while it is not used, at most {100 * most / self.peak:.0f} % of the arena is"
            )
        return self._no_copy(life, begin, end) or "the budget is kept without moving it"

    def _no_copy(self, life: Life, begin: int, end: int) -> str | None:
        """Why the value is not copied out between two uses and back, as far as time tells."""
        room, takes = self._between(begin, end), self._round_trip(life, 1)
        if room < takes:
            return f"the time without it is short: {duration(room)}, a copy out and back takes {duration(takes)}"
        first, last = self.starts[begin + 1], self.starts[end]
        for way, lane in (("out", self.lanes.out), ("in", self.lanes.back)):
            busy = self.busy[way].within(first, last)
            if last - first - busy < lane.duration(life.value.type.nbytes):
                return f"the link is full: the lane {way} is busy {100 * busy / (last - first):.0f} % of the {duration(room)} without it"
        return None

    def _between(self, begin: int, end: int) -> int:
        """Picoseconds from the end of one op to the start of another."""
        return max(0, self.starts[end] - self.starts[begin + 1])

    def _most(self, begin: int, end: int) -> int:
        """The most bytes that are live between two ops."""
        return int(self.live[begin + 1 : end].max(initial=0))

    def _round_trip(self, life: Life, back: int) -> int:
        nbytes = life.value.type.nbytes
        return self.lanes.out.duration(nbytes) + back * self.lanes.back.duration(nbytes)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _op_name(op: Op | None) -> str:
    assert op is not None
    if op.region is None:
        return op.name
    names = [inner.name for inner in op.region.ops]
    return "+".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} ops fused with it"
