# SPDX-License-Identifier: Apache-2.0
"""materialize-returns: every returned value gets bytes of its own, which no one else may hold.

Results are written into buffers given per run. So a returned value must not be a parameter, a constant, part of
another storage, or the same storage as another returned value: each such return is replaced with a `copy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memc.ir.build import IRBuilder
from memc.ir.copies import is_copy, is_host_value
from memc.ir.core import Function, Op, Value
from memc.ir.liveness import covers_root, is_fixed, updates_state
from memc.ir.module import Module
from memc.passes.base import Pass


def materialize_returns(module: Module, function: Function) -> None:
    """Append the copies that `function` needs; does nothing to one that needs none."""
    taken: set[Value] = set()
    copies: list[Op] = []
    builder = IRBuilder(module, function, copies)
    for index, value in enumerate(function.returns):
        fixed = is_fixed(value.root) and not updates_state(value)
        copied = value.root.op is not None and is_copy(value.root.op) and not is_host_value(value)
        if fixed or copied or not covers_root(value) or value.root in taken:
            function.returns[index] = builder.op("copy", [value])
        taken.add(function.returns[index].root)
    function.ops.extend(copies)


@dataclass(frozen=True)
class MaterializeReturns(Pass):
    """Insert copies for returned parameters, constants, parts of storages, prefetched values and repeated returns."""

    name: ClassVar[str] = "materialize-returns"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            materialize_returns(module, function)
