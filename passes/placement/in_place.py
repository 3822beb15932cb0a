# SPDX-License-Identifier: Apache-2.0
"""in-place: results take over operands' bytes, views look into them, concats are written slice by slice.

The decisions are `alias_plan.py`'s; this pass writes them down as aliases and as `in_place` in ops' plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Optional

from memc.ir.checked_options import Alignment
from memc.ir.copies import arena_states, is_brought_back, is_done, is_written_back
from memc.ir.core import Alias, Function, OpPlan
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.op_queries import assigned_state
from memc.ir.snapshot import is_unplaced
from memc.passes.base import Pass, alignment_of
from memc.passes.placement.alias_plan import AliasPlan, aliased, plan_aliases


def make_in_place(function: Function, alignment: int = ALIGNMENT) -> None:
    """Alias what `plan_aliases` finds worth it. Offsets inside a storage are multiples of `alignment` bytes."""
    apply_plan(plan_aliases(function, alignment))


def apply_plan(plan: AliasPlan) -> None:
    """Write the decisions down as aliases and in the plans of ops."""
    for value, root, offset in aliased(plan):
        value.alias = Alias(root, offset)
    made: dict[tuple[OpPlan, int], OpPlan] = {}  # Most plans are alike.
    for op, operand in plan.in_place.items():
        wanted = op.plan, operand
        if wanted not in made:
            made[wanted] = replace(op.plan, in_place=operand)
        op.plan = made[wanted]


def alias_copies(function: Function) -> None:
    """Alias what waits for a copy to what the copy writes, and the new content of a state that a copy has brought back to the state,
    where that is not so yet: they have no other bytes."""
    resting = set(arena_states(function))
    for op in function.ops:
        if is_done(op) and op.results[0].alias is None:
            pending = op.operands[0]
            op.results[0].alias = Alias(pending.root, pending.offset_in_root)
        assigned = assigned_state(op) if resting else None
        if assigned is not None and assigned[1] in resting and op.results[0].alias is None:
            op.results[0].alias = Alias(assigned[1], 0)
            op.plan = replace(op.plan, in_place=assigned[0])


@contextmanager
def applied(function: Function, plan: AliasPlan) -> Iterator[None]:
    """`function` with the aliases of `plan`, which are taken back at the end."""
    before = [(op, op.plan) for op in plan.in_place]
    apply_plan(plan)
    try:
        yield
    finally:
        for value in function.values():
            if not is_written_back(value) and not is_brought_back(value):
                value.alias = None
        for op, own in before:
            op.plan = own


@dataclass(frozen=True)
class InPlace(Pass):
    """In-place ops, views and zero-copy concat. Leaves a function alone that has aliases or placements already."""

    name: ClassVar[str] = "in-place"
    alignment: Optional[Alignment] = None
    """Bytes; parts of a storage that start elsewhere are copied instead."""

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_unplaced(function):
                make_in_place(function, alignment_of(self.alignment, module))
