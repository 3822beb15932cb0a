# SPDX-License-Identifier: Apache-2.0
"""The arena that a function will take, before anything is decided."""

from __future__ import annotations

from contextlib import nullcontext

from memc.ir.core import Function
from memc.ir.liveness import ALIGNMENT, ARENA, lifetimes
from memc.ir.snapshot import is_unplaced
from memc.passes.placement.alias_plan import plan_aliases
from memc.passes.placement.assign_addresses import blocks_of
from memc.passes.placement.in_place import applied
from memc.solvers.placement import Problem, lower_bound
from memc.solvers.placement_problem import solve_native


def planned_arena(
    function: Function, alignment: int = ALIGNMENT, most: int | None = None, quick: bool = False, space: str = ARENA
) -> int:
    """Bytes of the arena, or of another space, that `function` will take: those of its storages there, placed. Aliases that it has
    are kept; where it has none and no placements, they are planned.

    If more than `most` bytes are live at one time, that many are returned, and no addresses are sought. With `quick` they are
    sought with a small part of the work, and a function may take less in the end.
    """
    plan = applied(function, plan_aliases(function, alignment)) if is_unplaced(function) else nullcontext()
    with plan:
        buffers = [block.buffer() for block in blocks_of(lifetimes(function, space), shared=False)]
    problem = Problem(buffers, alignment)
    if most is not None and (least := lower_bound(problem)) > most:
        return least
    return solve_native(problem, "auto", one_round=quick).peak
