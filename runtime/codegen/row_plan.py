# SPDX-License-Identifier: Apache-2.0
"""How ops on the same rows share them out among threads, and what of them goes to memory: the plan of `row_fusion.py`.

Where a row is short, its elements stay in registers between the ops, and what no op outside of the kernel reads is not
stored; a longer row is read again for each reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from memc.ir.core import Op, Value
from memc.runtime.codegen.lower_op import splat

WARP = 32

WARP_COLUMNS = 256
"""Columns that one warp does alone: its threads need not meet at a barrier."""

MOST_TEAM = 1024

MOST_TURNS = 8
"""The most columns of a thread with which a row stays in registers."""

MOST_KEPT = 40
"""The most elements, of all values, that a thread keeps in registers."""


@dataclass(frozen=True)
class RowPlan:
    """How the rows of some ops are shared out, and what the kernel is given."""

    shape: tuple[int, ...]
    axes: int
    """How many of the first axes tell rows apart."""
    team: int
    """Threads for a row."""
    stays: bool
    """Whether the elements of a row stay in registers."""
    given: tuple[Value, ...]
    """Operands that none of the ops makes, first uses first."""
    stored: tuple[Value, ...]
    """Results that are written to memory."""

    @property
    def rows(self) -> int:
        return math.prod(self.shape[: self.axes])

    @property
    def columns(self) -> int:
        return math.prod(self.shape[self.axes :])

    @property
    def turns(self) -> int:
        """Columns of a thread."""
        return -(-self.columns // self.team)

    @property
    def parameters(self) -> tuple[Value, ...]:
        """What the kernel is given, in order."""
        return (*self.given, *self.stored)

    def aligned(self, value: Value) -> tuple[int, ...]:
        """The shape of a value with an axis for each of the rows'."""
        return (1,) * (len(self.shape) - value.type.rank) + value.type.shape

    def varies(self, value: Value) -> bool:
        """Whether the columns of a row differ."""
        return self.aligned(value)[self.axes :] != (1,) * (len(self.shape) - self.axes)


def plan_rows(ops: Sequence[Op], is_read: Callable[[Value], bool], target: str) -> RowPlan:
    """`is_read`: whether an op outside of the kernel, or the caller, reads a result. `target`: llvm or cuda."""
    given: dict[Value, None] = {}
    results = [op.result for op in ops]
    for op in ops:
        given.update((v, None) for v in op.operands if v not in results and splat(v) is None)
    shape = np.broadcast_shapes(*(v.type.shape for v in (*given, *results)))
    axes = ops[0].plan.rows
    assert axes is not None
    columns = math.prod(shape[axes:])
    team = 1
    if target == "cuda":
        team = WARP
        while columns > WARP_COLUMNS and columns > 4 * team and team < MOST_TEAM:
            team *= 2
    draft = RowPlan(shape, axes, team, False, tuple(given), tuple(results))
    kept = sum(map(draft.varies, (*given, *results)))
    stays = draft.turns <= MOST_TURNS and draft.turns * kept <= MOST_KEPT
    stored = tuple(v for v in results if is_read(v) or not stays and draft.varies(v))
    return RowPlan(shape, axes, team, stays, tuple(given), stored)
