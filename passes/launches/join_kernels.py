# SPDX-License-Identifier: Apache-2.0
"""join-kernels: horizontal fusion of ops that follow one another; each thread computes the same element of all their results.

A recurrent network's step or a batch norm's statistics are many small ops, whose kernels take less time than it takes to
launch them. Threads do not wait for each other, so an op may join only if no thread needs what another one writes:

- all results have the same number of elements;
- what one of the ops writes, others read or overwrite at the same element only.

Nothing is moved: ops keep their order, values and addresses, which is why this comes last. Ops of one kernel have one
number as `joint` in their plans; those that have one already, from `join-updates`, are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from memc.ir.byte_range import ByteRange
from memc.ir.core import Function, Op, Value
from memc.ir.module import Module
from memc.ir.op_queries import has_no_code, pointwise_operands, slice_offsets, view_offset
from memc.ir.ops.shared.op_def import Compute, Trait, inner_ops, lookup
from memc.passes.base import Pass

MOST_OPS = 12
MOST_TENSORS = 24
"""Limits that keep a kernel's code and argument list sane."""


@dataclass
class Run:
    """Ops for one kernel, in their order, and what they read and write."""

    ops: list[Op] = field(default_factory=list)
    elsewhere: list[ByteRange] = field(default_factory=list)
    """Read at other elements than the one that is computed."""
    here: list[ByteRange] = field(default_factory=list)
    """Read at the same element."""
    written: list[ByteRange] = field(default_factory=list)
    made: set[Value] = field(default_factory=set)
    values: set[Value] = field(default_factory=set)

    def takes(self, op: Op) -> bool:
        """Whether `op` may follow."""
        if not self.ops:
            return True
        result = op.result
        if result.type.elements != self.ops[0].result.type.elements or len(self.ops) == MOST_OPS:
            return False
        if len(self.values | {*op.operands, result}) > MOST_TENSORS:
            return False
        target = ByteRange.of(result)
        if any(target.meets(b) for b in self.elsewhere):
            return False
        if any(target.meets(b) and target != b for b in (*self.here, *self.written)):
            return False
        pointwise = pointwise_operands(op)
        for number, operand in enumerate(op.operands):
            source = ByteRange.of(operand)
            if any(source.meets(b) for b in self.written) and not (operand in self.made and number in pointwise):
                return False
        return True

    def add(self, op: Op) -> None:
        pointwise = pointwise_operands(op)
        for number, operand in enumerate(op.operands):
            (self.here if number in pointwise else self.elsewhere).append(ByteRange.of(operand))
        self.ops.append(op)
        target = ByteRange.of(op.result)
        # What lies there from now on is this result.
        self.made = {v for v in self.made if not ByteRange.of(v).meets(target)} | {op.result}
        self.written.append(target)
        self.values |= {*op.operands, op.result}


def can_join(op: Op) -> bool:
    """Whether an op, by itself, could be part of a joint kernel: one result, each element computed from few others."""
    if (
        len(op.results) != 1
        or op.result.type.elements == 0
        or op.plan.library_kernel is not None
        or op.plan.joint is not None
    ):
        return False
    if view_offset(op) is not None or any(offset is not None for offset in slice_offsets(op)):
        return False  # May need no kernel, or several that copy.
    return all(_is_one_by_one(inner) for inner in inner_ops(op))


def _is_one_by_one(op: Op) -> bool:
    definition = lookup(op.name)
    if op.name == "constant":
        return True
    if definition is None or not isinstance(definition.lower, Compute) or not op.operands:
        return False
    return bool(definition.traits & {Trait.ELEMENTWISE, Trait.INJECTIVE}) and Trait.REDUCTION not in definition.traits


def joint_kernels(function: Function) -> int:
    """How many there are already: the number of the next one."""
    return len({op.plan.joint for op in function.ops if op.plan.joint is not None})


def find_runs(function: Function) -> Iterator[list[Op]]:
    """The runs of more than one op, in order. Ops without code do not end a run."""
    run = Run()
    for op in function.ops:
        if has_no_code(op):
            continue
        joins = can_join(op)
        if not (joins and run.takes(op)):
            if len(run.ops) > 1:
                yield run.ops
            run = Run()
        if joins:
            run.add(op)
    if len(run.ops) > 1:
        yield run.ops


@dataclass(frozen=True)
class JoinKernels(Pass):
    """Horizontal fusion: runs of ops with results of one size become one kernel each, where launches cost time."""

    name: ClassVar[str] = "join-kernels"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            for number, run in enumerate(find_runs(function), joint_kernels(function)):
                for op in run:
                    op.plan = replace(op.plan, joint=number)
