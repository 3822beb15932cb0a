# SPDX-License-Identifier: Apache-2.0
"""group-copies: starts and dones of copies moved to where others are, so that ops and copies wait for each other in fewer places.

On a GPU each place where a copy is forked off the kernels' stream, or joined with it, takes the kernels some microseconds. Once there are
addresses, it is known how far each may move: a start up to the last op that writes what it reads or touches what it writes, and the done of
a copy to the host down to the first op that writes the bytes that it frees. Nothing else moves, and no address changes.

- A start moves up to the start before it in its lane, if it may: the lane waits there for the ops before both. Its copy begins no later.
- Dones of copies to the host move down until the first op that needs one of them; there one wait for the last copy of a lane
  stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from memc.ir.byte_range import ByteRange
from memc.ir.copies import has_copies, is_done, is_start
from memc.ir.core import Function, Op, Value
from memc.ir.module import Module
from memc.ir.op_queries import view_offset
from memc.passes.base import Pass


@dataclass(frozen=True)
class _Touched:
    """The bytes that an op, or the copy that it begins, reads and writes."""

    reads: list[ByteRange]
    writes: list[ByteRange]

    @staticmethod
    def of(op: Op) -> _Touched:
        reads = [ByteRange.of(v) for v in op.operands]
        if is_done(op) or view_offset(op) is not None:  # No bytes are written.
            return _Touched([*reads, *map(ByteRange.of, op.results)], [])
        written: Iterable[Value] = op.results if op.workspace is None else [*op.results, op.workspace]
        return _Touched(reads, [ByteRange.of(v) for v in written])

    def writes_to(self, other: Iterable[ByteRange]) -> bool:
        """Whether it writes any of these bytes."""
        return any(mine.meets(theirs) for mine in self.writes for theirs in other)

    def conflicts(self, other: _Touched) -> bool:
        """Whether the two may not change places."""
        return self.writes_to([*other.reads, *other.writes]) or other.writes_to(self.reads)


def group_copies(function: Function) -> None:
    """Move starts and dones of copies together. The function has placements."""
    touched = {op: _Touched.of(op) for op in function.ops}
    function.ops = _dones_down(_starts_up(function.ops, touched), touched)


def _starts_up(ops: Iterable[Op], touched: dict[Op, _Touched]) -> list[Op]:
    found: list[Op] = []
    last: dict[object, int] = {}
    """The index among those found of the last start of each lane."""
    for op in ops:
        if not is_start(op):
            found.append(op)
            continue
        lane = op.attrs["lane"]
        at = last.get(lane, len(found) - 1) + 1
        if any(_keeps_apart(other, op, touched) for other in found[at:]):
            at = len(found)
        found.insert(at, op)
        last = {name: index + (index >= at) for name, index in last.items()} | {lane: at}
    return found


def _keeps_apart(other: Op, start: Op, touched: dict[Op, _Touched]) -> bool:
    """Whether a start must stay behind another op."""
    return start.operands[0].op is other or touched[other].conflicts(touched[start])


def _dones_down(ops: Iterable[Op], touched: dict[Op, _Touched]) -> list[Op]:
    found: list[Op] = []
    waiting: list[Op] = []
    for op in ops:
        if any(_needs(op, done, touched) for done in waiting):
            found += waiting
            waiting = []
        if op.name == "offload_done":
            waiting.append(op)
        else:
            found.append(op)
    return found + waiting


def _needs(op: Op, done: Op, touched: dict[Op, _Touched]) -> bool:
    """Whether an op must stay behind the done of a copy to the host: it reads the copy, writes to its bytes, or writes what was copied."""
    return done.results[0] in op.operands or touched[op].writes_to(touched[done].reads)


@dataclass(frozen=True)
class GroupCopies(Pass):
    """Starts and dones of copies moved together, as far as addresses allow."""

    name: ClassVar[str] = "group-copies"
    plans: ClassVar[bool] = True

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if has_copies(function):
                group_copies(function)
