# SPDX-License-Identifier: Apache-2.0
"""The copies between spaces of a function by number: lanes, and slots for those that are under way at one time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memc.ir.copies import is_done, is_start
from memc.ir.core import Function, Value


@dataclass(frozen=True)
class CopySlots:
    """The copies of a function by number, for a runtime that makes all it needs for them at once."""

    lanes: Mapping[str, int]
    slots: Mapping[Value, int]
    """By the pending value. Copies that are under way at one time have different ones."""

    @property
    def count(self) -> int:
        """How many slots there are."""
        return max(self.slots.values(), default=-1) + 1

    @staticmethod
    def of(function: Function) -> CopySlots:
        """The lanes in the order of their first copies; each copy takes the lowest slot that is free."""
        lanes: dict[str, int] = {}
        slots: dict[Value, int] = {}
        taken: set[int] = set()
        for op in function.ops:
            if is_start(op):
                lanes.setdefault(str(op.attrs["lane"]), len(lanes))
                free = next(n for n in range(len(taken) + 1) if n not in taken)
                slots[op.results[0]] = free
                taken.add(free)
            elif is_done(op):
                taken.discard(slots[op.operands[0]])
        return CopySlots(lanes, slots)
