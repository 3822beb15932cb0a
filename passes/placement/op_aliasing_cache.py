# SPDX-License-Identifier: Apache-2.0
"""What ops say of sharing bytes with their operands, asked once for the plans of several orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memc.ir.core import Op, Value
from memc.ir.op_queries import assigned_state, in_place_operands, slice_offsets, view_offset


@dataclass(frozen=True)
class OpAliasing:
    """What an op says of its result 0, wherever it runs. See `op_queries.py`."""

    assigned: tuple[int, Value] | None
    view: int | None
    in_place: Sequence[int]
    slices: Sequence[int | None]
    """Empty if none of the operands is a part."""

    @staticmethod
    def of(op: Op) -> OpAliasing:
        offsets = slice_offsets(op)
        slices = offsets if offsets.count(None) < len(offsets) else ()
        return OpAliasing(assigned_state(op), view_offset(op), in_place_operands(op), slices)


KnownAliasing = dict[Op, OpAliasing]
"""The rules of ops met before, which the next plan for the same ops can use, in whatever order they are."""
