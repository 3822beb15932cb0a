# SPDX-License-Identifier: Apache-2.0
"""donate: the new content of a state is written over the old one.

`assign` says which value is the new content of which state, and is the last to touch the state. Its result becomes an
alias of the parameter, so an update needs no bytes besides the state's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from memc.ir.core import Alias, Function, Op, Value
from memc.ir.errors import InvalidError
from memc.ir.module import Module
from memc.ir.op_queries import assigned_state
from memc.passes.base import Pass


def check_last(function: Function) -> None:
    """Raise InvalidError unless every state that an op assigns is read by no later op, and assigned once."""
    assigned: dict[Value, Op] = {}
    for index, op in enumerate(function.ops):
        for value in op.operands:
            if value in assigned:
                raise InvalidError(
                    f"@{function.name}: op {index} {op.name}: expected no use of state %{value.name} after its new content "
                    f"%{assigned[value].results[0].name} was assigned, got one; assign it last"
                )
        found = assigned_state(op)
        if found is not None:
            assigned[found[1]] = op


def donate(function: Function) -> None:
    """Alias each assigned value to its state, unless it is already."""
    check_last(function)
    for op in function.ops:
        found = assigned_state(op)
        if found is not None and op.results[0].alias is None:
            number, state = found
            op.results[0].alias = Alias(state, 0)
            op.plan = replace(op.plan, in_place=number)


@dataclass(frozen=True)
class Donate(Pass):
    """Write the new content of states over the old one."""

    name: ClassVar[str] = "donate"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            donate(function)
