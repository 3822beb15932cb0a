# SPDX-License-Identifier: Apache-2.0
"""The statements of a kernel that is written one by one, as those of row-wise fusions are (`row_fusion.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from memc.runtime.codegen.expressions import dtype_of
from memc.runtime.codegen.multi_tensor import named


class Statements:
    """Statements in their order, and the values that they bind."""

    def __init__(self, target: str, index: str) -> None:
        """`index`: the dtype of places in tensors."""
        self.target, self.index = target, index
        self.statements: list[Any] = []

    def split(self, flat: Any, shape: Sequence[int]) -> list[Any]:
        """The index along each axis of `shape` of a place in it."""
        found: list[Any] = []
        inner = math.prod(shape)
        outermost = True
        for extent in shape:
            inner //= extent
            if extent == 1:
                found.append(self.const(0))
                continue
            place = flat if inner == 1 else tirx.truncdiv(flat, tirx.IntImm(dtype_of(flat), inner))
            place = place if outermost else tirx.truncmod(place, tirx.IntImm(dtype_of(flat), extent))
            outermost = False
            found.append(self.bind("axis", self.opaque(place).astype(self.index)))
        return found

    def taken(self) -> Any:
        """The statements so far, as one."""
        taken, self.statements = self.statements, []
        return tirx.SeqStmt(taken)

    def unwrapped(self, value: Any) -> Any:
        """An expression without the bindings around it, which become statements."""
        while isinstance(value, tirx.Let):
            self.statements.append(tirx.Bind(value.var, value.value))
            value = value.body
        return value

    def opaque(self, value: Any) -> Any:
        """A value that TVM does not write out again wherever it is used."""
        return named(value) if self.target == "cuda" else value

    def bind(self, name: str, value: Any) -> Any:
        variable = tirx.Var(name, dtype_of(value))
        self.statements.append(tirx.Bind(variable, value))
        return variable

    def const(self, value: int) -> Any:
        return tirx.IntImm(self.index, value)
