# SPDX-License-Identifier: Apache-2.0
"""Weights that stay on the host and are copied in while ops run, so that inference keeps a budget that they do not fit in.

Which, and when, is the native search's decision (`cpp/solvers/offload/stream_search.h`), for the order of ops that `reorder`
finds and for some plans of copies and recomputation that take less of the arena. The result is what takes the least time, of
those and of what is found without streamed weights.
"""

from __future__ import annotations

from memc.ir.core import Function, Role
from memc.ir.errors import BudgetError
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot, is_unplaced
from memc.ir.spaces import ARENA
from memc.passes.budget import Budget, over_budget
from memc.passes.offload.stream_choices import Kept, StreamChoices
from memc.passes.offload.weight_streams import WeightStreams
from memc.passes.recompute.choices import Recomputation
from memc.passes.recompute.rematerialize import Plans, bytes_taken, rematerialize


def may_stream(function: Function, least: int) -> bool:
    """Whether the function has weights, of at least `least` bytes, that may be streamed. It must have no states, which runs change,
    nor aliases already."""
    if next(iter(function.params_of(Role.STATE)), None) is not None or not is_unplaced(function):
        return False
    return bool(WeightStreams.of(function, least).reads)


def stream_weights(module: Module, function: Function, how: Kept) -> Recomputation:
    """Reorder `function`, of which `may_stream` holds, and have weights copied in, values copied out and back, and ops run again
    until it keeps the budget.

    A lower budget never gives a larger peak, nor less time. Raises BudgetError, leaving the function as it was, if no plan that was
    found keeps it.
    """
    plans = Plans.of(function, how.search, how.alignment)
    arena = plans.arena
    taken = bytes_taken(module, function, how.alignment, True).with_bytes(ARENA, arena)
    whole = how.budget.of(taken.peak)
    if taken.peak <= whole:
        return Recomputation(arena, arena, 0.0, 0)
    streams = StreamChoices(module, function, how, taken, plans)
    alone: Recomputation | None = None
    if taken.peak - arena + streams.starts.bound <= whole:
        alone = _resident(module, function, how, whole, plans)
        if alone is not None and alone.added == 0:
            return alone
        unstreamed = Snapshot.of(module, function)
        streams.before.restore()
    streams.add()
    found = streams.best(whole)
    if found is None or found.added > 0:
        streams.before.restore()
        streams.add_all()
        found = streams.best(whole)
    if alone is not None and (found is None or alone.added <= found.added):
        streams.before.restore()
        unstreamed.restore()
        return alone
    if found is None:
        error = over_budget(whole, streams.least(), how.copies.host_budget)
        function.ops = list(plans.given)
        raise error
    return found


def _resident(module: Module, function: Function, how: Kept, whole: int, plans: Plans) -> Recomputation | None:
    """What copies and recomputation alone give. None, and the function as it was, if they do not keep the budget."""
    try:
        budget = (Budget(whole), how.costs, how.alignment, True, how.search)
        return rematerialize(module, function, *budget, copies=how.copies, plans=plans)
    except BudgetError:
        return None
