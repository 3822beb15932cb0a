# SPDX-License-Identifier: Apache-2.0
"""join-updates: updates of states of any sizes that follow one another become one multi-tensor kernel.

Its threads are divided among *lanes*. A lane is a run of ops on tensors of one size: all that a thread does with an element,
such as the update of a weight and of its moments. Threads of different lanes do not wait for each other, so no lane may read or
write what another writes. Ops of one kernel have one number as `joint` in their plans, those of a lane one as `lane`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from memc.ir.byte_range import ByteRange
from memc.ir.core import Function, Op
from memc.ir.module import Module
from memc.ir.op_queries import has_no_code, pointwise_operands
from memc.passes.base import Pass
from memc.passes.launches.join_kernels import Run
from memc.passes.launches.update_ops import update_ops

MOST_LANES = 1024
"""The most lanes of one kernel, which bounds its table of tensors."""


@dataclass
class Lanes:
    """The lanes of one kernel, and what they read and write."""

    runs: list[Run] = field(default_factory=list)
    touched: dict[Hashable, list[tuple[ByteRange, Run, bool]]] = field(default_factory=dict)
    """The bytes that each run touches, by storage, and whether it writes them."""

    def add(self, op: Op) -> bool:
        """Take an op in, if threads may compute it with the others."""
        run = self._run_for(op)
        if run is None:
            return False
        run.add(op)
        for value in op.operands:
            self._touch(ByteRange.of(value), run, False)
        self._touch(ByteRange.of(op.result), run, True)
        return True

    def _run_for(self, op: Op) -> Run | None:
        """The lane of those that the op depends on, else one that reads the same; a new one; or None."""
        target, sources = ByteRange.of(op.result), [ByteRange.of(v) for v in op.operands]
        if any(b.begin % v.type.dtype.itemsize for b, v in zip((target, *sources), (op.result, *op.operands))):
            return None
        bound = {id(run): run for _, run, _ in self._meeting(target)}
        bound |= {id(run): run for source in sources for _, run, written in self._meeting(source) if written}
        if bound:
            (run, *others) = bound.values()
            return run if not others and run.takes(op) else None
        for number in pointwise_operands(op):
            for found, run, _ in self._meeting(sources[number]):
                if found == sources[number] and run.takes(op):
                    return run
        if len(self.runs) == MOST_LANES:
            return None
        self.runs.append(Run())
        return self.runs[-1]

    def _meeting(self, where: ByteRange) -> Iterator[tuple[ByteRange, Run, bool]]:
        return (found for found in self.touched.get(where.storage, ()) if found[0].meets(where))

    def _touch(self, where: ByteRange, run: Run, written: bool) -> None:
        self.touched.setdefault(where.storage, []).append((where, run, written))


def find_lanes(function: Function) -> Iterator[list[Run]]:
    """The kernels of more than one lane, in order. Ops without code do not end one."""
    updates = update_ops(function)
    lanes = Lanes()
    for op in function.ops:
        if has_no_code(op):
            continue
        if op in updates and lanes.add(op):
            continue
        if len(lanes.runs) > 1:
            yield lanes.runs
        lanes = Lanes()
        if op in updates:
            lanes.add(op)
    if len(lanes.runs) > 1:
        yield lanes.runs


@dataclass(frozen=True)
class JoinUpdates(Pass):
    """Multi-tensor kernels: updates of many states become one kernel for each run of them, where launches cost time."""

    name: ClassVar[str] = "join-updates"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            for number, runs in enumerate(find_lanes(function)):
                for lane, run in enumerate(runs):
                    for op in run.ops:
                        op.plan = replace(op.plan, joint=number, lane=lane)
