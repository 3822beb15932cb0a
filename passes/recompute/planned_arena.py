# SPDX-License-Identifier: Apache-2.0
"""The arena that a function will take, before anything is decided."""

from __future__ import annotations

from contextlib import nullcontext

from memc.ir.core import Function
from memc.ir.liveness import ALIGNMENT, lifetimes
from memc.ir.snapshot import is_unplaced
from memc.passes.placement.alias_plan import plan_aliases
from memc.passes.placement.assign_addresses import Block
from memc.passes.placement.in_place import applied
from memc.solvers.placement import Problem, lower_bound, solve


def planned_arena(function: Function, alignment: int = ALIGNMENT, most: int | None = None) -> int:
    """Bytes of the arena that `function` will take: those of its storages, placed. Aliases that it has are kept; where it
    has none and no placements, they are planned.

    If more than `most` bytes are live at one time, that many are returned, and no addresses are sought.
    """
    plan = applied(function, plan_aliases(function, alignment)) if is_unplaced(function) else nullcontext()
    with plan:
        buffers = [Block((life,)).buffer() for life in lifetimes(function)]
    problem = Problem(buffers, alignment)
    if most is not None and (least := lower_bound(problem)) > most:
        return least
    return solve(problem, "auto").peak
