# SPDX-License-Identifier: Apache-2.0
"""join-rows: row-wise fusion of ops that follow one another and work on the same rows; a team of threads computes a row.

A softmax or a layer norm is a few ops that reduce rows to numbers or combine rows with such numbers; each op by itself takes
less time than it takes to launch it. All that one row needs can be done by one team: each thread has its own columns,
and the numbers of the row are known to all threads of the team. An op may join if

- its result has the shape of the rows, or is one number for each row: what is left by a reduction of the last axes, or is
  computed from such numbers alone;
- what one of the ops writes, others read or overwrite at the same place only;
- none of the ops overwrites what several threads read from memory, such as a scale, a mask or a number for each row.

Nothing is moved: ops keep their order, values and addresses. Ops of one kernel have one number as
`joint` in their plans, and as `rows` the number of leading axes that tell rows apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from memc.ir.byte_range import ByteRange
from memc.ir.core import Function, Op, Value
from memc.ir.module import Module
from memc.ir.op_queries import has, has_no_code, slice_offsets, view_offset
from memc.ir.ops.shared.common import ints_attr
from memc.ir.ops.shared.op_def import Compute, Trait, inner_ops, lookup
from memc.ir.types import DType
from memc.passes.base import Pass
from memc.passes.launches.join_kernels import MOST_OPS, MOST_TENSORS, joint_kernels

REDUCTIONS = frozenset({"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"})

LEAST_COLUMNS = 16
"""Rows that are shorter would leave most threads of a warp without work."""

MOST_COLUMNS = 1 << 15
"""Columns that one block of threads does in no more time than a launch takes."""

MANY_ROWS = 1 << 8
"""Rows that fill a device, however long they are."""


@dataclass(frozen=True)
class Frame:
    """The shape of the rows, and how many of its first axes tell them apart (None: that is not known yet)."""

    shape: tuple[int, ...]
    rows: int | None

    def aligned(self, shape: Sequence[int]) -> tuple[int, ...]:
        """`shape` with as many axes, as numpy broadcasts it."""
        return (1,) * (len(self.shape) - len(shape)) + tuple(shape)

    def holds(self, value: Value) -> bool:
        """Whether a value broadcasts to the rows."""
        shape = self.aligned(value.type.shape)
        return len(shape) == len(self.shape) and all(n in (1, whole) for n, whole in zip(shape, self.shape))

    def is_whole(self, value: Value) -> bool:
        """Whether a value has an element for each of the rows'."""
        return self.aligned(value.type.shape) == self.shape

    def is_numbers(self, value: Value) -> bool:
        """Whether a value has one element for each row."""
        if self.rows is None:
            return False
        return self.aligned(value.type.shape) == self.shape[: self.rows] + (1,) * (len(self.shape) - self.rows)

    @property
    def pays(self) -> bool:
        """Whether one team for each row is fast."""
        if self.rows is None:
            return False
        rows, columns = math.prod(self.shape[: self.rows]), math.prod(self.shape[self.rows :])
        return columns >= LEAST_COLUMNS and (columns <= MOST_COLUMNS or rows >= MANY_ROWS)


def frame_of(op: Op, known: Frame | None) -> Frame | None:
    """The frame that an op fits into: the known one or, where that leaves it open, a closer one. None: it does not fit."""
    inner = inner_ops(op)
    reductions = [o for o in inner if o.name in REDUCTIONS]
    if known is None:
        known = Frame(reductions[0].operands[0].type.shape if reductions else op.result.type.shape, None)
    if reductions:
        reduced = reductions[0]
        axes = ints_attr(reduced.attrs, "axes")
        rank, whole = reduced.operands[0].type.rank, len(known.shape)
        first = whole - len(axes)
        trailing = sorted(a + whole - rank for a in axes) == list(range(first, whole))
        if not trailing or not known.is_whole(reduced.operands[0]) or known.rows not in (None, first):
            return None
        known = Frame(known.shape, first)
        if not known.is_numbers(op.result):
            return None
    elif not (known.is_whole(op.result) or known.is_numbers(op.result)):
        return None
    return known if all(known.holds(v) for o in (op, *inner) for v in (*o.operands, *o.results)) else None


def can_work_by_rows(op: Op) -> bool:
    """Whether an op, by itself, could be part of such a kernel: one result, at most one reduction, else elementwise."""
    if (
        len(op.results) != 1
        or op.result.type.elements == 0
        or op.plan.library_kernel is not None
        or op.plan.joint is not None
    ):
        return False
    if view_offset(op) is not None or any(offset is not None for offset in slice_offsets(op)) or not op.operands:
        return False  # May need no kernel, or several that copy.
    inner = inner_ops(op)
    return all(map(_is_known_step, inner)) and sum(o.name in REDUCTIONS for o in inner) <= 1


def _is_known_step(op: Op) -> bool:
    if op.name == "constant":
        return op.result.type.elements == 1
    definition = lookup(op.name)
    if definition is None or not isinstance(definition.lower, Compute) or not op.operands:
        return False
    if op.name in REDUCTIONS:
        return bool(op.attrs["keepdims"] and op.attrs["axes"]) and op.result.type.dtype in (DType.F32, DType.F64)
    return op.name == "broadcast" or has(op, Trait.ELEMENTWISE) and not has(op, Trait.RANDOM)


@dataclass
class RowRun:
    """Ops for one kernel, in their order, and what they read and write."""

    frame: Frame | None = None
    ops: list[Op] = field(default_factory=list)
    shared: list[ByteRange] = field(default_factory=list)
    """Read from memory by several threads."""
    own: list[tuple[ByteRange, bool]] = field(default_factory=list)
    """Read or written by one thread for each element; whether they are numbers of rows."""
    written: list[ByteRange] = field(default_factory=list)
    made: set[Value] = field(default_factory=set)
    values: set[Value] = field(default_factory=set)

    def takes(self, op: Op) -> bool:
        """Take an op in, if it may follow."""
        frame = frame_of(op, self.frame)
        if frame is None or len(self.ops) == MOST_OPS or len(self.values | {*op.operands, op.result}) > MOST_TENSORS:
            return False
        shared, own = list(self.shared), list(self.own)
        for operand in op.operands:
            source = ByteRange.of(operand)
            if operand not in self.made and any(source.meets(b) for b in self.written):
                return False
            if frame.is_whole(operand):
                own.append((source, False))
            elif operand not in self.made:
                shared.append(source)
        target = (ByteRange.of(op.result), not frame.is_whole(op.result))
        if any(target[0].meets(b) for b in shared) or any(target[0].meets(b[0]) and target != b for b in own):
            return False
        self.frame, self.shared, self.own = frame, shared, [*own, target]
        self.ops.append(op)
        # What lies there from now on is this result.
        self.made = {v for v in self.made if not ByteRange.of(v).meets(target[0])} | {op.result}
        self.written.append(target[0])
        self.values |= {*op.operands, op.result}
        return True

    @property
    def pays(self) -> bool:
        return len(self.ops) > 1 and self.frame is not None and self.frame.pays


def find_row_runs(function: Function) -> Iterator[RowRun]:
    """The runs of more than one op with a reduction among them, in order. Ops without code do not end a run."""
    run = RowRun()
    for op in function.ops:
        if has_no_code(op):
            continue
        joins = can_work_by_rows(op)
        if joins and run.takes(op):
            continue
        if run.pays:
            yield run
        run = RowRun()
        if joins:
            run.takes(op)
    if run.pays:
        yield run


@dataclass(frozen=True)
class JoinRows(Pass):
    """Row-wise fusion: runs of ops that reduce and rescale the same rows become one kernel each, where launches cost time."""

    name: ClassVar[str] = "join-rows"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            for number, run in enumerate(find_row_runs(function), joint_kernels(function)):
                assert run.frame is not None and run.frame.rows is not None
                for op in run.ops:
                    op.plan = replace(op.plan, joint=number, rows=run.frame.rows)
