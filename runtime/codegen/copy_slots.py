# SPDX-License-Identifier: Apache-2.0
"""The copies between spaces of a function by number: lanes, and slots for those that are under way at one time; and where kernels
and copies must wait for each other.

Copies of a lane run one after another, and so do kernels. So where no kernel comes between,

- a start does not have its lane wait for the kernels again;
- of dones of one lane the last copy's is the only one that kernels wait at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memc.ir.copies import is_done, is_start, start_of
from memc.ir.core import Function, Op, Value
from memc.ir.op_queries import has_no_code


@dataclass(frozen=True)
class CopySlots:
    """The copies of a function by number, for a runtime that makes all it needs for them at once."""

    lanes: Mapping[str, int]
    slots: Mapping[Value, int]
    """By the pending value. Copies that are under way at one time have different ones."""
    forks: frozenset[Op]
    """Starts whose lanes wait for the kernels before them."""
    joins: frozenset[Op]
    """Dones that kernels wait at."""

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
        joins = _joins(function)
        return CopySlots(lanes, slots, _forks(function, joins), joins)


def _forks(function: Function, joins: frozenset[Op]) -> frozenset[Op]:
    forked: set[object] = set()
    """The lanes that have waited for all that kernels wait for."""
    found = []
    for op in function.ops:
        if is_start(op):
            if op.attrs["lane"] not in forked:
                found.append(op)
            forked.add(op.attrs["lane"])
        elif op in joins or not (is_done(op) or has_no_code(op)):
            forked.clear()
    return frozenset(found)


def _joins(function: Function) -> frozenset[Op]:
    numbers = {op: number for number, op in enumerate(op for op in function.ops if is_start(op))}
    joined: dict[object, int] = {}
    """By lane: the last copy that is waited for before the next kernel or start, going through the ops backwards."""
    found = []
    for op in reversed(function.ops):
        if is_done(op):
            start = start_of(op)
            assert start is not None
            lane, number = start.attrs["lane"], numbers[start]
            if number > joined.get(lane, -1):
                found.append(op)
                joined[lane] = number
        elif is_start(op) or not has_no_code(op):
            joined.clear()
    return frozenset(found)
