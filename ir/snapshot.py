# SPDX-License-Identifier: Apache-2.0
"""Taking a rewrite back: an optimization never raises the peak."""

from __future__ import annotations

from dataclasses import dataclass

from memc.ir.copies import is_brought_back, is_copy, is_written_back
from memc.ir.core import Alias, Array, Attr, Function, Op, OpPlan, Placement, Value
from memc.ir.module import Module


@dataclass
class Snapshot:
    """The ops, operands, returns, parameters and weights of a function at one moment.

    Passes may replace operands, attributes and plans of ops, but make new values rather than change types or names.
    """

    function: Function
    module: Module
    ops: list[tuple[Op, list[Value], dict[str, Attr], OpPlan]]
    returns: list[Value]
    params: list[Value]
    weights: dict[str, Array]

    @staticmethod
    def of(module: Module, function: Function) -> Snapshot:
        ops = [(op, list(op.operands), dict(op.attrs), op.plan) for op in function.ops]
        return Snapshot(function, module, ops, list(function.returns), list(function.params), dict(module.weights))

    def is_current(self) -> bool:
        """Whether the ops, their operands, attributes and plans, and the returns are the very same objects still."""
        function = self.function
        if function.ops != [op for op, *_ in self.ops] or function.returns != self.returns:
            return False
        for op, operands, attrs, plan in self.ops:
            if op.plan is not plan or op.operands != operands or len(op.attrs) != len(attrs):
                return False
            if any(key not in attrs or attrs[key] is not value for key, value in op.attrs.items()):
                return False
        return True

    def restore(self) -> None:
        """Put everything back. May be called more than once."""
        for op, operands, attrs, plan in self.ops:
            op.operands, op.attrs, op.plan = list(operands), dict(attrs), plan
        self.function.ops = [op for op, *_ in self.ops]
        self.function.returns = list(self.returns)
        self.function.params = list(self.params)
        self.module.weights = dict(self.weights)


@dataclass
class Beginning:
    """A module as it was before any pass, plans included."""

    module: Module
    functions: list[Snapshot]
    placed: list[tuple[Value, Alias | None, Placement | None]]
    workspaces: list[tuple[Op, Value | None]]

    @staticmethod
    def of(module: Module) -> Beginning:
        functions = [Snapshot.of(module, function) for function in module.functions]
        placed = [(v, v.alias, v.placement) for function in module.functions for v in function.values()]
        workspaces = [(op, op.workspace) for function in module.functions for op in function.ops]
        return Beginning(module, functions, placed, workspaces)

    def restore(self) -> Module:
        """Put everything back. May be called more than once."""
        self.module.functions = [snapshot.function for snapshot in self.functions]
        for snapshot in self.functions:
            snapshot.restore()
        for value, alias, placement in self.placed:
            value.alias, value.placement = alias, placement
        for op, workspace in self.workspaces:
            op.workspace = workspace
        return self.module


def is_unplaced(function: Function) -> bool:
    """Whether no value has an alias or a placement yet, but for what copies write to states: that these are written is no decision
    about memory."""
    return all(
        v.placement is None and (v.alias is None or is_written_back(v) or is_brought_back(v)) for v in function.values()
    )


def is_raw(function: Function) -> bool:
    """Whether no memory decision has been taken yet: no alias, placement, workspace or copy between spaces.

    Passes that rewrite ops leave any other function alone, since its ops may write over each other's operands.
    """
    return is_unplaced(function) and all(op.workspace is None and not is_copy(op) for op in function.ops)
