# SPDX-License-Identifier: Apache-2.0
"""The arena that a function will take, before anything is decided."""

from __future__ import annotations

from contextlib import nullcontext

from memc.ir.core import Function
from memc.ir.liveness import ALIGNMENT, lifetimes
from memc.passes.alias_plan import plan_aliases
from memc.passes.assign_addresses import Block
from memc.passes.in_place import applied
from memc.passes.solvers import Problem, solve
from memc.passes.undo import is_unplaced


def planned_arena(function: Function, alignment: int = ALIGNMENT) -> int:
    """Bytes of the arena that `function` will take: those of its storages, placed. Aliases that it has are kept; where it
    has none and no placements, they are planned."""
    plan = applied(function, plan_aliases(function, alignment)) if is_unplaced(function) else nullcontext()
    with plan:
        buffers = [Block((life,)).buffer() for life in lifetimes(function)]
    return solve(Problem(buffers, alignment), "auto").peak
