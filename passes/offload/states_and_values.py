# SPDX-License-Identifier: Apache-2.0
"""One memory budget kept by optimizer states on the host and by what `rematerialize` does with values, recomputation and copies.

States use the link where values leave it idle: they come in while values leave, and leave while values come back. So a plan of values
is made first, for a budget that is larger by the bytes of the states which move and smaller by room for their windows; then the
states' copies are put around it, in what its lanes and its arena have left. That is tried for a few sets of states, always those whose
updates come first: as few as the budget needs if no value moves, those whose copies the step can hide, and all. The plan without states
on the host is always a candidate, so that the quickest is never slower than that, by the clock of `lane_times.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from memc.ir.core import Function
from memc.ir.cost_model import CostModel
from memc.ir.errors import BudgetError
from memc.ir.module import Module
from memc.ir.sizes import align
from memc.ir.snapshot import Snapshot
from memc.ir.spaces import ARENA
from memc.passes.budget import Budget
from memc.passes.offload.host_states import place_states
from memc.passes.offload.lane_times import LaneTimes
from memc.passes.offload.state_finding import How, StatesOnHost
from memc.passes.offload.state_updates import StateUpdates, Update
from memc.passes.order.reorder import Search
from memc.passes.pipelines import States
from memc.passes.recompute.choices import Copies, Recomputation
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.rematerialize import Plans, bytes_taken, rematerialize
from memc.solvers.offload import FULL_SPEED

TIGHTER = (1.0, 0.96)
"""Parts of the arena that live bytes may take, for plans whose addresses take more than that."""


@dataclass
class _Best:
    picoseconds: int
    found: Recomputation
    after: Snapshot


@dataclass(frozen=True)
class StatesAndValues:
    """What a budget is kept with."""

    module: Module
    function: Function
    budget: Budget
    costs: CostModel
    alignment: int
    search: Search
    copies: Copies
    states: States

    def keep(self) -> Recomputation:
        """Change the function, which must not have placements, so that arena, weights, states, inputs and outputs keep the budget.
        Raises BudgetError, leaving it as it was, if no plan that was found does."""
        before = Snapshot.of(self.module, self.function)
        updates: Sequence[Update] = ()
        if self.states != "none":
            updates = StateUpdates.of(self.function, self.copies.least).updates
        plans = Plans.of(self.function, self.search, self.alignment)
        best: _Best | None = None
        error: BudgetError | None = None
        if self.states != "all" or not updates:
            try:
                found = self._values(plans, self.copies)
            except BudgetError as caught:
                if not updates:
                    raise
                error = caught
            else:
                if not updates or not found.added:
                    return found
                best = self._noted(found)
        updates = self._within_host(updates)
        counts = self._counts(plans, updates, before)
        if best is not None:
            counts = [count for count in counts if self._alone(plans, updates[:count], before) < best.found.added]
        # Room for two updates at once, or, where addresses are not found so, for more; for less where no plan is found at all.
        tries = [(count, (2, 6)) for count in counts]
        tries += [(len(updates), rooms) for rooms in ((2, 6), (1, 0)) if updates and (len(updates), rooms) not in tries]
        for number, (count, rooms) in enumerate(tries):
            if number >= len(counts) and best is not None:
                break
            for largest in rooms:
                before.restore()
                try:
                    tried = self._with_states(plans, updates[:count], largest)
                except BudgetError as caught:
                    # What is reached with room for two updates can be planned.
                    error = _lower(error, caught) if largest == 2 else error or caught
                    continue
                if tried is not None:
                    noted = self._noted(tried)
                    best = noted if best is None or noted.picoseconds < best.picoseconds else best
                    break
            if best is not None and best.found.added <= 0:
                break
        if best is None:
            before.restore()
            raise error or BudgetError(
                f"memory budget: expected room in it for the updates of states in @{self.function.name}, got none; allow more"
            )
        best.after.restore()
        return best.found

    def _values(self, plans: Plans, copies: Copies, moved: int = 0, room: int = 0) -> Recomputation:
        how = (self.budget, self.costs, self.alignment, True, self.search)
        return rematerialize(self.module, self.function, *how, copies=copies, plans=plans, moved=moved, room=room)

    def _noted(self, found: Recomputation) -> _Best:
        times = LaneTimes.of(self.function.ops, self.costs.cost, self.copies.lanes)
        return _Best(times.makespan, found, Snapshot.of(self.module, self.function))

    def _within_host(self, updates: Sequence[Update]) -> Sequence[Update]:
        """The first of some updates, as many as the host budget has room for."""
        host, left = self.copies.host_budget, len(updates)
        while left and host is not None and self._freed(updates[:left]) > host:
            left -= 1
        return updates[:left]

    def _freed(self, updates: Iterable[Update]) -> int:
        """Bytes of the device that the states of updates take."""
        return sum(align(state.type.nbytes, self.alignment) for update in updates for state in update.states)

    def _counts(self, plans: Plans, updates: Sequence[Update], before: Snapshot) -> list[int]:
        """Of how many updates, from the first on, states are to move."""
        if not updates:
            return []
        if self.states == "all":
            return [len(updates)]
        before.restore()
        self.function.ops = list(plans.best)
        found = dict.fromkeys([*self._enough(plans, updates), self._hidden(updates)])
        return [count for count in found if count]

    def _most(self, plans: Plans) -> int:
        """The bytes of the arena that the budget leaves without states on the host."""
        taken = bytes_taken(self.module, self.function, self.alignment, True).with_bytes(ARENA, plans.arena)
        return self.budget.of(taken.peak) - (taken.peak - plans.arena)

    def _enough(self, plans: Plans, updates: Sequence[Update]) -> Iterator[int]:
        """How many updates free as many bytes as the budget lacks."""
        missing, freed, largest = plans.arena - self._most(plans), 0, 0
        for count, update in enumerate(updates, 1):
            freed, largest = freed + self._freed([update]), max(largest, self._freed([update]))
            if freed - 2 * largest >= missing:
                yield count
                return

    def _hidden(self, updates: Sequence[Update]) -> int:
        """How many updates there are whose states are back on the host when the step ends."""
        times = LaneTimes.of(self.function.ops, self.costs.cost, self.copies.lanes)
        place = {op: times.begins[index + 1] for index, op in enumerate(self.function.ops)}
        lane, end = self.copies.lanes.out, 0
        for count, update in enumerate(updates):
            ready = max((place[op] for op in update.behind), default=0)
            moved = sum(lane.duration(state.type.nbytes) for state in update.states)
            end = max(end, ready) + moved * FULL_SPEED // lane.shared
            if end > times.makespan:
                return count
        return len(updates)

    def _alone(self, plans: Plans, chosen: Sequence[Update], before: Snapshot) -> float:
        """What copies of states add if no value moves, as a share of one run of every op; about the least that they do."""
        before.restore()
        self.function.ops = list(plans.best)
        again = StateUpdates.of(self.function, self.copies.least)
        found = place_states(self.function, again, again.updates[: len(chosen)], None, self._how(self.copies))
        return inf if found is None else found.added / max(1, found.once)

    def _how(self, copies: Copies) -> How:
        return How(self.costs, copies.link, copies.origin, copies.lanes, copies.least, self.alignment)

    def _with_states(self, plans: Plans, chosen: Sequence[Update], largest: int) -> Recomputation | None:
        """The plan with the states of updates on the host, and room in the arena for so many of the largest; None if there is none."""
        names = {state.name for update in chosen for state in update.states}
        freed = self._freed(chosen)
        room = largest * max(self._freed([update]) for update in chosen)
        most = self._most(plans) + freed
        host = self.copies.host_budget
        copies = replace(self.copies, host_budget=None if host is None else host - freed)
        found = self._values(plans, copies, freed, room)
        before = Snapshot.of(self.module, self.function)
        for part, stay in product(TIGHTER, (True, False)):
            again = StateUpdates.of(self.function, copies.least)
            here = [update for update in again.updates if all(state.name in names for state in update.states)]
            placed = place_states(self.function, again, here, int(part * most), self._how(copies), stay)
            if placed is None or len(placed.states) != len(names):
                break  # Less room does not help.
            arena = planned_arena(self.function, self.alignment, most, quick=True)
            if arena <= most:
                return self._joined(found, placed, arena)
            before.restore()
        return None

    def _joined(self, found: Recomputation, placed: StatesOnHost, arena: int) -> Recomputation:
        makespan = LaneTimes.of(self.function.ops, self.costs.cost, self.copies.lanes).makespan
        added = (makespan - placed.once) / max(1, placed.once)
        return replace(found, arena=arena, added=added, states=placed)


def _lower(a: BudgetError | None, b: BudgetError) -> BudgetError:
    """The one that names fewer bytes."""
    return b if a is None or a.least is None or (b.least is not None and b.least < a.least) else a
