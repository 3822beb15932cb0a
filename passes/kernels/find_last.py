# SPDX-License-Identifier: Apache-2.0
"""find-last: gradients of embeddings look no further than to the last place where a row is named.

A GPU sums up the rows of a gradient by index in a fixed order, for which a row's threads look at all indices. Most rows of
a vocabulary are in no batch: one op finds where each is named last, once for all columns, and their threads need not look
at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Optional

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Alignment
from memc.ir.core import Function, Op
from memc.ir.module import Module
from memc.ir.ops.library.cuda_scatters import FEW_ROWS
from memc.ir.snapshot import Snapshot, is_raw
from memc.passes.base import Pass, alignment_of
from memc.passes.placement.alias_plan import planned_peak

LEAST_COLUMNS = 32
"""Elements of a row from which on it is worth an op of its own: a warp's threads look for one row together."""


def find_last(module: Module, function: Function, alignment: int) -> None:
    """Give every `gather_grad` of many rows the last place of each, unless that raises the peak."""
    if not any(looks_long(op) for op in function.ops):
        return
    peak = planned_peak(function, alignment)
    before = Snapshot.of(module, function)
    builder = IRBuilder(module, function, [])
    for op in function.ops:
        if looks_long(op):
            builder.location = op.location
            indices = op.operands[0]
            flat = builder.op("reshape", [indices], shape=(indices.type.elements,))
            extent = op.attrs["extent"]
            assert isinstance(extent, int)
            last = builder.op("scatter_elements_combine", [flat, flat], axis=0, shape=(extent,), reduction="none")
            op.operands = [*op.operands, last]
        builder.ops.append(op)
    function.ops = builder.ops
    if planned_peak(function, alignment) > peak:
        before.restore()


def looks_long(op: Op) -> bool:
    """Whether an op adds up rows by index, many of them and each of many elements."""
    if op.name != "gather_grad" or len(op.operands) != 2:
        return False
    axis, extent, indices = op.attrs["axis"], op.attrs["extent"], op.operands[0].type
    assert isinstance(axis, int) and isinstance(extent, int)
    columns = math.prod(op.operands[1].type.shape[axis + indices.rank :])
    return extent > FEW_ROWS and columns >= LEAST_COLUMNS and 0 < indices.elements < 2**31


@dataclass(frozen=True)
class FindLast(Pass):
    """Tell gradients of embeddings where each row is named last. Never raises the peak."""

    name: ClassVar[str] = "find-last"
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                find_last(module, function, alignment_of(self.alignment, module))
