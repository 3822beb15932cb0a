# SPDX-License-Identifier: Apache-2.0
"""host-states: optimizer states that lie on the host between steps, and in the arena while they are updated.

Each is copied in for its update, updated in the arena, and copied back over its old content; or, of the last ones, copied back when the
next step begins, if that takes less time. Copies in depend on nothing that the step
computes, so they run beside the ops before; updates run as soon as their gradients are there, so that copies back run beside the
ops after them. Which states may move, and what is updated together, is `state_updates.py`'s; when copies run, `state_windows.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Optional

from memc.ir.checked_options import Alignment, ByteCount, Range
from memc.ir.core import Function, Op, Role, Value
from memc.ir.errors import UsageError
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot, is_unplaced
from memc.ir.target import Kind
from memc.passes.base import Pass, alignment_of
from memc.passes.offload.lane_times import LaneTimes
from memc.passes.offload.link_rates import link_of
from memc.passes.offload.state_copies import insert_copies
from memc.passes.offload.state_finding import UNASKED, How, StatesOnHost, nothing_moved, once
from memc.passes.offload.state_updates import StateUpdates, Update
from memc.passes.offload.state_windows import Delays, grouped, least_room, planned_windows
from memc.passes.offload.update_orders import delayed_orders, with_gradients
from memc.passes.placement.alias_plan import plan_aliases
from memc.passes.recompute.choices import Copies
from memc.passes.recompute.rematerialize import costs_of

GROUPS = (32, 16, 8)
"""Into about how many groups of equal bytes updates are put where each place of copies takes ops some time."""

ROUNDS = 4
"""How often updates are delayed by how long ops wait for their states."""


def place_states(
    function: Function,
    found: StateUpdates,
    chosen: Sequence[Update],
    limit: int | None,
    how: How,
    stay: bool = True,
) -> StatesOnHost | None:
    """Have the states of the `chosen` updates lie on the host, in the way that takes the least time while at most `limit` bytes are
    live in the arena; without one, as many as are without this, and no more than one update needs beyond that. `stay`: the last may stay in
    the arena between steps. None, with the function as
    it was, if there is no such way, or nothing is chosen."""
    if not chosen:
        return None
    before = Snapshot.of(Module([function]), function)
    first = LaneTimes.of(function.ops, how.costs.cost, how.lanes)
    if limit is None:
        limit = max(plan_aliases(function, how.alignment).peak, _least(function, found, chosen, how))
        before.restore()
    tries = _Tries(function, found, limit, how, before)
    late = with_gradients(function, chosen)
    for most in _group_sizes(chosen, how):
        tries.add(chosen, most)
    if tries.best is None:
        return None
    plain = tries.best
    for order in delayed_orders(chosen, late, how):
        tries.add(order, tries.best.most)
    tries.wait(late)
    if stay:
        for start in [plain] if tries.best is plain else [plain, tries.best]:
            tries.stay(start)
    tries.best.after.restore()
    return _finding(function, found, tries.best.followed, tries.best.makespan - first.makespan, how)


def _group_sizes(chosen: Sequence[Update], how: How) -> list[int]:
    """Bytes that groups of updates may have, to be tried."""
    if not how.lanes.out.sync and not how.lanes.back.sync:
        return [0]
    whole = sum(update.bytes for update in chosen)
    return [0, *(whole // count for count in GROUPS)]


@dataclass(frozen=True)
class _Try:
    makespan: int
    chosen: Sequence[Update]
    most: int
    followed: _Followed
    after: Snapshot
    delays: Delays | None
    waits: Mapping[Value, int]
    """Picoseconds that ops wait for the copies in of each state."""

    @property
    def order(self) -> tuple[int, int, int]:
        """The best first."""
        return self.makespan, self.followed.window, self.most


@dataclass
class _Tries:
    """Ways in which a function may be changed. It is left as it was."""

    function: Function
    found: StateUpdates
    limit: int
    how: How
    before: Snapshot
    best: _Try | None = None

    def add(self, chosen: Sequence[Update], most: int, delays: Delays | None = None, staying: int = 0) -> _Try | None:
        """Try a sequence of updates in groups of `most` bytes, so many of which stay. None if these have no room."""
        tried = None
        followed = _follow(self.function, self.found, chosen, most, self.limit, self.how, delays, staying)
        if followed is not None:
            made = LaneTimes.of(self.function.ops, self.how.costs.cost, self.how.lanes)
            waits = _waits(self.function, made, self.how)
            after = Snapshot.of(self.before.module, self.function)
            tried = _Try(made.makespan, chosen, most, followed, after, delays, waits)
            if self.best is None or tried.order < self.best.order:
                self.best = tried
        self.before.restore()
        return tried

    def wait(self, late: Mapping[Update, Update]) -> None:
        """Try to have updates for whose states ops wait run later, as long as that takes less time: by themselves, and with what
        makes their gradients."""
        assert self.best is not None
        start = self.best
        for whole in (False, True):
            tried = start
            delays: dict[Op, int] = {}
            for _ in range(ROUNDS):
                if not tried.waits:
                    break
                for update in tried.chosen:
                    longest = max((tried.waits.get(state, 0) for state in update.states), default=0)
                    if longest:
                        delays[update.ops[0]] = delays.get(update.ops[0], 0) + longest
                chosen = [late.get(u, u) if whole and u.ops[0] in delays else u for u in tried.chosen]
                later = self.add(chosen, start.most, Delays(delays, self.how.costs.cost))
                if later is None or later.makespan >= tried.makespan:
                    break
                tried = later

    def stay(self, start: _Try) -> None:
        """Try to have ever more of the last groups of what was tried stay in the arena between steps, as long as that takes less time."""
        least, count, groups = start.makespan, 1, start.followed.groups
        while count < 2 * groups:
            tried = self.add(start.chosen, start.most, start.delays, min(count, groups))
            if tried is None or tried.makespan >= least:
                break
            least, count = tried.makespan, 2 * count


def _waits(function: Function, times: LaneTimes, how: How) -> dict[Value, int]:
    """Picoseconds that ops wait for the copies in of states."""
    found: dict[Value, int] = {}
    for index, op in enumerate(function.ops):
        if op.name == "prefetch_done" and (state := op.operands[1]).role is Role.STATE:
            waited = times.begins[index + 1] - times.begins[index] - how.lanes.back.join
            if waited > 0:
                found[state] = found.get(state, 0) + waited
    return found


@dataclass(frozen=True)
class _Followed:
    groups: int
    window: int
    states: tuple[Value, ...]
    staying: tuple[Value, ...]
    bytes_in: int


def _least(function: Function, found: StateUpdates, chosen: Sequence[Update], how: How) -> int:
    """The fewest bytes that are live at most if each update waits for no other. Changes the order of ops."""
    sequence = grouped(function.ops, found, chosen, 0)
    function.ops = sequence.ops
    return least_room(sequence, plan_aliases(function, how.alignment).live, how.alignment)


def _follow(
    function: Function,
    found: StateUpdates,
    chosen: Sequence[Update],
    most: int,
    limit: int,
    how: How,
    delays: Delays | None,
    staying: int,
) -> _Followed | None:
    """Change the function into one with groups of `most` bytes; None, with another order of its ops alone, if they have no room."""
    sequence = grouped(function.ops, found, chosen, most, delays)
    function.ops = sequence.ops
    live = plan_aliases(function, how.alignment).live
    times = LaneTimes.of(function.ops, how.costs.cost, how.lanes)
    windows = planned_windows(sequence, live, limit, times, how.lanes, how.alignment, staying)
    if windows is None:
        return None
    insert_copies(function, windows)
    written = [window for window in windows if window.written]
    change: dict[int, int] = {}
    for window in windows:
        edges = [(window.begin, 1), (max(window.end, window.last), -1)]
        if window.left is not None:
            edges += [(0, 1), (window.left, -1)]
        for at, sign in edges:
            change[at] = change.get(at, 0) + sign * window.bytes
    total = most_at_once = 0
    for at in sorted(change):
        total += change[at]
        most_at_once = max(most_at_once, total)
    states = tuple(state for window in written for state in window.states)
    stay = tuple(state for window in written if window.left is not None for state in window.states)
    return _Followed(len(written), most_at_once, states, stay, sum(window.bytes for window in windows))


def _finding(function: Function, found: StateUpdates, made: _Followed, added: int, how: How) -> StatesOnHost:
    nbytes = sum(state.type.nbytes for state in made.states)
    moved = {state.name for state in made.states}
    others = {state.name for update in found.updates for state in update.states} - moved
    reasons = {**found.reasons, **dict.fromkeys(sorted(others), UNASKED)}
    return StatesOnHost(
        tuple(sorted(moved)),
        nbytes,
        made.bytes_in,
        nbytes,
        made.groups,
        made.window,
        added,
        once(function, how),
        reasons,
        how,
        sum(state.type.nbytes for state in made.staying),
    )


def require_plain(name: str, function: Function) -> None:
    """Raise UsageError, which begins with the name of a pass, for a function with aliases or placements."""
    if not is_unplaced(function):
        raise UsageError(f"{name}: expected a function without aliases and placements; run it before in-place")


@dataclass(frozen=True)
class HostStates(Pass):
    """Optimizer states on the host between steps, copied into the arena for their updates and back."""

    name: ClassVar[str] = "host-states"
    orders: ClassVar[bool] = True
    link: str | None = None
    """How fast states are copied, as `offload` takes it."""
    least_copy: ByteCount = Copies.least
    """Bytes that a state must have to be copied."""
    target: Optional[Kind] = None
    """Whose speed the duration of an op is guessed from."""
    profile: str | None = None
    """A JSON file of measured times: seconds by op signature, which count instead, and perhaps a link."""
    most_added: Optional[Annotated[float, Range(least=0)]] = None
    """Percent of one run of every op that copies of states may take in the cost model: those whose updates are ready first move, as
    many as do; all without it."""
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> StatesOnHost | None:
        """What is said of @main: with no names where none of its states moves."""
        link = link_of(self.link, module.target, self.profile)
        costs = costs_of(module, self.target, self.profile)
        how = How(costs, link.name, link.origin, link.lanes(), self.least_copy, alignment_of(self.alignment, module))
        said = None
        for function in module.functions:
            require_plain(self.name, function)
            found = StateUpdates.of(function, self.least_copy)
            chosen = found.updates[: self._count(module, function, found, how)]
            made = place_states(function, found, chosen, None, how)
            if made is not None:
                module.target = link.target(module.target)
            if function.name == "main":
                said = made or nothing_moved(function, how)
        return said

    def _count(self, module: Module, function: Function, found: StateUpdates, how: How) -> int:
        """How many updates have their states on the host."""
        whole = len(found.updates)
        if self.most_added is None or not whole:
            return whole
        before = Snapshot.of(module, function)
        fewer = 0
        while fewer < whole:  # What they take does not always fall with their number.
            made = place_states(function, found, found.updates[: whole - fewer], None, how)
            before.restore()
            if made is not None and 100 * made.added <= self.most_added * made.once:
                return whole - fewer
            fewer = 2 * fewer + 1
        return 0
