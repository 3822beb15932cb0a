# SPDX-License-Identifier: Apache-2.0
"""Which states may lie on the host between steps, and the ops that update them.

A state may if nothing but its update reads it, as with an optimizer's moments, or casts to fewer bits, as with weights in f32 beside
half precision. What else assigns states together with it, element by element, is one *update*: that of a weight and its moments.
Updates need only be behind the gradients that they read, and behind what reads the states that they assign.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memc.ir.copies import is_copy
from memc.ir.core import Function, Op, Role, Value
from memc.ir.op_queries import assigned_state, has, origin_of, view_offset
from memc.ir.ops.shared.op_def import Trait, lookup
from memc.ir.sizes import format_size
from memc.passes.launches.update_ops import update_ops


@dataclass(frozen=True)
class Update:
    """Ops that update states together."""

    ops: tuple[Op, ...]
    """In their order, with views that they alone read."""
    states: tuple[Value, ...]
    """Those of them that may lie on the host."""
    behind: frozenset[Op]
    """Other ops that must come first."""
    before: tuple[Op, ...] = ()
    """Ops that make its gradient, where they are to run right before it."""

    @property
    def bytes(self) -> int:
        """Of its states on the host."""
        return sum(state.type.nbytes for state in self.states)


@dataclass(frozen=True)
class StateUpdates:
    """What is known of a function's states."""

    updates: tuple[Update, ...]
    """Those with a state that may lie on the host, in the order in which they are ready."""
    early: frozenset[Op]
    """Scalars and constants that updates read and nothing makes late: they may come before all other ops, in their order."""
    casts: Mapping[Value, tuple[Op, ...]]
    """The ops beside its update that read a state which may lie on the host."""
    reasons: Mapping[str, str]
    """Why other states may not, by name."""

    @staticmethod
    def of(function: Function, least: int) -> StateUpdates:
        """States of at least so many bytes may lie on the host."""
        reads = _Reads.of(function)
        flat = update_ops(function)
        reasons: dict[str, str] = {}
        movable: set[Value] = set()
        for state in function.params_of(Role.STATE):
            why = reads.immovable(state, flat, least)
            if why is None:
                movable.add(state)
            else:
                reasons[state.name] = why
        found = [_update(reads, ops, movable) for ops in _together(function, flat)]
        found = [update for update in found if update.states]
        early = _early(function, (value for update in found for op in update.ops for value in op.operands))
        place = {op: -1 if op in early else index for op, index in reads.place.items()}
        found.sort(key=lambda update: (max((place[op] for op in update.behind), default=-1), place[update.ops[0]]))
        casts = {state: tuple(op for op in reads.by[state] if op not in flat) for state in movable}
        return StateUpdates(tuple(found), early, {s: ops for s, ops in casts.items() if ops}, reasons)


@dataclass(frozen=True)
class _Reads:
    function: Function
    by: Mapping[Value, Sequence[Op]]
    """The ops that read each state, through views too."""
    viewed: Collection[Value]
    """States that some op reads through a view."""
    written: Mapping[Value, Op]
    """The op that assigns each state."""
    uses: Mapping[Value, Sequence[Op]]
    """The ops that read each value."""
    place: Mapping[Op, int]
    """The index of each op."""

    @staticmethod
    def of(function: Function) -> _Reads:
        by: dict[Value, list[Op]] = {state: [] for state in function.params_of(Role.STATE)}
        viewed: set[Value] = set()
        written: dict[Value, Op] = {}
        for op in function.ops:
            for value in dict.fromkeys(op.operands):
                origin, _ = origin_of(value)
                if origin in by and view_offset(op) is None:
                    by[origin].append(op)
                    if value is not origin:
                        viewed.add(origin)
            if (found := assigned_state(op)) is not None:
                written[found[1]] = op
        place = {op: index for index, op in enumerate(function.ops)}
        return _Reads(function, by, viewed, written, function.uses(), place)

    def immovable(self, state: Value, flat: Collection[Op], least: int) -> str | None:
        """Why a state may not lie on the host, in words; None if it may."""
        if state.type.nbytes < max(1, least):
            return f"is below the least copy of {format_size(least)}"
        if state.type.elements == 1:
            return "is a scalar"
        update = self.written.get(state)
        if update is None or update.result not in self.function.returns:
            return "is not updated"
        if update not in flat:
            return f"is updated by {_named(update)}, which does more than that"
        if state in self.viewed:
            return "is read through a view"
        for op in self.by[state]:
            if op not in flat and not _narrows(op, state):
                return f"is read by {_named(op)}, too"
        return None


def _named(op: Op) -> str:
    return op.name if op.region is None else "+".join(inner.name for inner in op.region.ops)


def _narrows(op: Op, state: Value) -> bool:
    """Whether an op makes of a state as many elements of fewer bytes, and is known."""
    if (lookup(op.name) is None and op.region is None) or is_copy(op) or len(op.results) != 1:
        return False
    made = op.result.type
    return made.elements == state.type.elements and made.nbytes < state.type.nbytes


def _together(function: Function, flat: Collection[Op]) -> list[list[Op]]:
    """The ops of `flat` in sets that share no state and no result, each in order."""
    leader: dict[Op, Op] = {}

    def find(op: Op) -> Op:
        while leader[op] is not op:
            leader[op] = leader[leader[op]]
            op = leader[op]
        return op

    first: dict[Value, Op] = {}
    for op in function.ops:
        if op not in flat:
            continue
        leader[op] = op
        for value in op.operands:
            if value.op is not None and value.op in leader:
                leader[find(op)] = find(value.op)
            elif value.role is Role.STATE and value.type.elements > 1:
                leader[find(op)] = find(first.setdefault(value, op))
    sets: dict[Op, list[Op]] = {}
    for op in function.ops:
        if op in leader:
            sets.setdefault(find(op), []).append(op)
    return list(sets.values())


def _update(reads: _Reads, ops: Sequence[Op], movable: Collection[Value]) -> Update:
    returned = set(reads.function.returns)
    own = dict.fromkeys(ops)
    views: list[Op] = []
    waiting = list(own)
    while waiting:
        for value in waiting.pop().operands:
            made = value.op
            if made is None or made in own or view_offset(made) is None:
                continue
            if value not in returned and all(user in own for user in reads.uses[value]):
                own[made] = None
                views.append(made)
                waiting.append(made)
    behind = {value.op for op in own for value in op.operands if value.op is not None and value.op not in own}
    assigned = [found[1] for op in ops if (found := assigned_state(op)) is not None]
    behind.update(op for state in assigned for op in reads.by[state] if op not in own)
    states = tuple(state for state in assigned if state in movable)
    return Update(tuple(sorted(own, key=reads.place.__getitem__)), states, frozenset(behind))


def _early(function: Function, values: Iterable[Value]) -> frozenset[Op]:
    """The ops that make those of `values` which are constants, or scalars that come from parameters and constants by ops that may
    run at any time; with what they are made of."""
    free: set[Op] = set()
    for op in function.ops:
        if op.name == "constant" or _is_free_scalar(op) and all(v.op is None or v.op in free for v in op.operands):
            free.add(op)
    found: set[Op] = set()
    waiting = list(values)
    while waiting:
        made = waiting.pop().op
        if made in free and made not in found:
            found.add(made)
            waiting += made.operands
    return frozenset(found)


def _is_free_scalar(op: Op) -> bool:
    """Whether an op makes scalars and gives the same whenever it runs."""
    if (lookup(op.name) is None and op.region is None) or op.workspace is not None or is_copy(op):
        return False
    if any(value.type.elements != 1 for value in op.results) or assigned_state(op) is not None:
        return False
    return not has(op, Trait.RANDOM) and not has(op, Trait.ONCE)
