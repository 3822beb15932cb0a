# SPDX-License-Identifier: Apache-2.0
"""delay-updates: updates of states wait for each other, so that few kernels can do many of them (`join-updates`).

An update frees the gradient that it reads, which the order of ops made use of wherever that lowers the peak. Elsewhere it
may as well come later: updates are held back until the gradients they keep alive would raise the peak, or until the end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Optional

from memc.ir.checked_options import Alignment
from memc.ir.core import Function, Op, Value
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.op_queries import assigned_state
from memc.ir.sizes import align
from memc.ir.snapshot import is_unplaced
from memc.passes.base import Pass, alignment_of
from memc.passes.launches.update_ops import update_ops
from memc.passes.placement.alias_plan import AliasPlan, plan_aliases
from memc.passes.placement.storages import Storage
from memc.passes.recompute.planned_arena import planned_arena

SHARES = (1.0, 0.9, 0.75, 0.5)
"""Of the peak, up to which updates wait, until addresses for it are found."""


def delayed(function: Function, updates: Collection[Op], plan: AliasPlan, alignment: int, most: int) -> list[Op]:
    """The ops of `function`, `updates` as late as live sets of at most so many bytes let them wait."""
    ops: list[Op] = []
    waiting: list[Op] = []
    held: dict[Storage, int] = {}
    """Rounded bytes of what the waiting ops read and write, but for states."""
    for index, op in enumerate(function.ops):
        if op in updates:
            waiting.append(op)
            used = [plan.storage[v] for v in (*op.operands, op.result)]
            held.update((s, align(s.size, alignment)) for s in used if not s.fixed and not s.output)
            continue
        beyond = sum(size for storage, size in held.items() if storage.upper <= index)
        if int(plan.live[index]) + beyond > most:
            ops += assigns_last(waiting)
            waiting, held = [], {}
        ops.append(op)
    return ops + assigns_last(waiting)


def assigns_last(ops: Sequence[Op]) -> list[Op]:
    """The ops that need no new content of a state first, so that none of their results lies where a gradient was that one of
    the others read: all of them can then run at once."""
    after: set[Value] = set()
    early: list[Op] = []
    late: list[Op] = []
    for op in ops:
        is_late = assigned_state(op) is not None or any(v in after for v in op.operands)
        (late if is_late else early).append(op)
        after.update(op.results if is_late else ())
    return early + late


def delay_updates(function: Function, alignment: int = ALIGNMENT, keep_arena: bool = False) -> None:
    """Delay all updates, or only what assigns states; nothing if the peak would rise, nor with `keep_arena` if the arena would."""
    before, plan = function.ops, plan_aliases(function, alignment)
    arena = planned_arena(function, alignment) if keep_arena else 0
    updates = waiting_together(function, update_ops(function))
    refused: list[list[Op]] = [before]
    for share, chosen in product(SHARES if keep_arena else SHARES[:1], (updates, assigns_alone(function, updates))):
        function.ops = delayed(function, chosen, plan, alignment, int(plan.peak * share))
        if function.ops not in refused and plan_aliases(function, alignment).peak <= plan.peak:
            if not keep_arena or planned_arena(function, alignment, arena) <= arena:
                return
        refused.append(function.ops)
        function.ops = before


def assigns_alone(function: Function, updates: Collection[Op]) -> set[Op]:
    """The updates that assign states, without those whose new content an op reads that does not wait with them."""
    return waiting_together(function, {op for op in updates if assigned_state(op) is not None})


def waiting_together(function: Function, updates: Collection[Op]) -> set[Op]:
    """The updates that can wait: nothing else reads their results, such as a copy that writes them back, and nothing else assigns
    a state whose old content they read."""
    uses, chosen = function.uses(), set(updates)
    assigned = {op: state[1] for op in function.ops if (state := assigned_state(op)) is not None}
    while True:
        elsewhere = {state for op, state in assigned.items() if op not in chosen}
        early = {op for op in chosen if not chosen.issuperset(uses[op.result]) or elsewhere.intersection(op.operands)}
        if not early:
            return chosen
        chosen -= early


@dataclass(frozen=True)
class DelayUpdates(Pass):
    """Updates of states side by side. Never raises the peak; leaves a function alone that has aliases or placements."""

    name: ClassVar[str] = "delay-updates"
    keep_arena: bool = False
    """Never make the arena larger either, where addresses are all that keeps a budget."""
    alignment: Optional[Alignment] = None
    """Bytes; sizes are rounded up to it."""

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_unplaced(function):
                delay_updates(function, alignment_of(self.alignment, module), self.keep_arena)
