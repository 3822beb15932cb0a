# SPDX-License-Identifier: Apache-2.0
"""Sequences in which updates of states may run.

By itself an update runs as soon as its gradient is there. What is updated last has no ops beside which its states could leave. So
the ops that make other weights' gradients may wait until then, with the updates behind them: if they take longer than their own states
take to leave, the difference hides what leaves before. Their operands stay in the arena meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from memc.ir.copies import is_copy
from memc.ir.core import Function, Op, Role, Value
from memc.ir.op_queries import assigned_state, has, origin_of, view_offset
from memc.ir.ops.shared.op_def import Trait, lookup
from memc.passes.launches.update_ops import is_flat
from memc.passes.offload.state_finding import How
from memc.passes.offload.state_updates import Update


def with_gradients(function: Function, updates: Sequence[Update]) -> dict[Update, Update]:
    """Updates that run right behind what makes their gradients, if nothing else reads that, by the updates themselves."""
    uses, returned = function.uses(), set(function.returns)
    place = {op: index for index, op in enumerate(function.ops)}
    found = {}
    for update in updates:
        own = set(update.ops)
        before: list[Op] = []
        waiting = sorted(update.behind, key=place.__getitem__)
        while waiting:
            op = waiting.pop()
            if op in own or not _may_wait(op, own, uses, returned):
                continue
            own.add(op)
            before.append(op)
            # What makes more than a product's operands has other readers mostly.
            if view_offset(op) is not None or is_flat(op):
                waiting += [value.op for value in op.operands if value.op is not None]
                waiting.sort(key=place.__getitem__)
        if before:
            before.sort(key=place.__getitem__)
            made = {value.op for op in before for value in op.operands if value.op is not None}
            behind = frozenset((made | update.behind) - own)
            found[update] = replace(update, before=tuple(before), behind=behind)
    return found


def _may_wait(op: Op, own: Collection[Op], uses: dict[Value, list[Op]], returned: Collection[Value]) -> bool:
    """Whether an op may run later, beside ops of its own that alone read what it makes."""
    if (lookup(op.name) is None and op.region is None) or is_copy(op) or op.name == "constant":
        return False
    if assigned_state(op) is not None or has(op, Trait.RANDOM) or has(op, Trait.ONCE):
        return False
    if any(origin_of(value)[0].role is Role.STATE for value in op.operands):  # Which may be updated meanwhile.
        return False
    return all(value not in returned and all(user in own for user in uses[value]) for value in op.results)


def delayed_orders(chosen: Sequence[Update], late: dict[Update, Update], how: How) -> Iterator[list[Update]]:
    """Sequences of `chosen` updates in which ever more of those that are ready last, one after another, run at the end with what
    makes their gradients. `late`: those that may."""

    def hides(update: Update) -> bool:
        leaves = sum(how.lanes.out.duration(state.type.nbytes) for state in update.states)
        return update in late and leaves <= sum(how.costs.cost(op) for op in (*late[update].before, *update.ops))

    able = [update for update in chosen if hides(update)]
    count = 1
    while count < 2 * len(able):
        last = able[-count:]
        # What is updated at the very end has the least to leave.
        moved = sorted(last, key=lambda update: -update.bytes)
        yield [update for update in chosen if update not in set(last)] + [late[update] for update in moved]
        count *= 2
