# SPDX-License-Identifier: Apache-2.0
"""The check that every plan passes: of its bytes, and of its copies.

The native library follows both in one walk, and whatever it does not find right goes to the checks of `memc.ir.verify`, which
have the last word and the messages.
"""

from __future__ import annotations

from memc import native
from memc.ir.core import Function
from memc.ir.module import Module
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.passes.plan_columns import PlanColumns, Unusual
from memc.solvers.arrays import tensor


def check_whole_plan(module: Module, alignment: int, *, partial: bool = False) -> None:
    """What `check_copy_races` and then `check_plan` do, quicker where both find nothing wrong. Raises CheckError."""
    if not partial and holds(module, alignment):
        return
    check_copy_races(module)
    check_plan(module, alignment, partial=partial)


def holds(module: Module, alignment: int) -> bool:
    """Whether the native walk finds the plans of all functions right. False also says that it cannot tell."""
    spaces = [space.name for space in module.target.spaces if space.holds == "values"]
    return all(_holds(function, alignment, spaces) for function in module.functions)


def _holds(function: Function, alignment: int, spaces: list[str]) -> bool:
    try:
        found = PlanColumns(function, alignment, spaces)
        columns = [tensor(column) for column in found.columns()]
    except Unusual:
        return False
    return bool(native.load()["memc_plan_holds"](columns, len(function.params), len(found.lanes)))
