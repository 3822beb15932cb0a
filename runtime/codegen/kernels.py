# SPDX-License-Identifier: Apache-2.0
"""The kernels of a program: made once for all ops that are the same but for their operands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm

from memc.ir.core import Op
from memc.ir.types import TensorType
from memc.runtime.codegen import schedule_cpu, schedule_gpu
from memc.runtime.codegen.joint import joint_key, lower_joint
from memc.runtime.codegen.kernel import kernel_key, lower_op
from memc.runtime.codegen.piece import piece_kernel
from memc.runtime.codegen.row_plan import RowPlan
from memc.runtime.codegen.rows import lower_rows, rows_key
from memc.runtime.target import Target


@dataclass(frozen=True)
class NamedKernel:
    """A kernel of an op, by the name it is called under."""

    name: str
    operands: tuple[int, ...]
    """Which operands of the op it is given, in order."""
    result: int
    """Which result it writes, given last."""


@dataclass
class KernelTable:
    """All kernels so far, scheduled for `target`."""

    target: Target
    functions: dict[str, tvm.tirx.PrimFunc] = field(default_factory=dict)
    known: dict[Any, tuple[NamedKernel, ...]] = field(default_factory=dict)
    pieces: dict[Any, str] = field(default_factory=dict)
    joints: dict[Any, str] = field(default_factory=dict)

    def kernels(self, op: Op, in_place: int | None) -> tuple[NamedKernel, ...]:
        """The kernels of an op, in calling order."""
        key = kernel_key(op, in_place)
        if key not in self.known:
            made = []
            for kernel in lower_op(op, self.target.kind, in_place):
                name = self.add(op.name if op.region is None else "fused_" + op.region.ops[-1].name, kernel.func)
                made.append(NamedKernel(name, kernel.operands, kernel.result))
            self.known[key] = tuple(made)
        return self.known[key]

    def joint(self, ops: Sequence[Op]) -> str:
        """The name of the kernel of several ops, which takes their `parameters`."""
        key = joint_key(ops)
        if key not in self.joints:
            self.joints[key] = self.add(f"joint_{last_name(ops)}", lower_joint(ops, self.target.kind))
        return self.joints[key]

    def rows(self, ops: Sequence[Op], plan: RowPlan) -> str:
        """The name of the kernel of several ops on the same rows, which takes what `plan` says."""
        key = rows_key(ops, plan)
        if key not in self.joints:
            self.joints[key] = self.add_scheduled(f"rows_{last_name(ops)}", lower_rows(ops, plan, self.target.kind))
        return self.joints[key]

    def piece(self, operand: TensorType, result: TensorType, start: tuple[int, ...]) -> str:
        """The name of the kernel that copies a tensor into part of another, beginning at index `start`."""
        key = (operand, result, start)
        if key not in self.pieces:
            self.pieces[key] = self.add("piece", piece_kernel(operand, result, start))
        return self.pieces[key]

    def add(self, stem: str, func: tvm.tirx.PrimFunc) -> str:
        """Schedule a kernel and give it a name."""
        module = schedule_gpu.schedule(func, self.target) if self.target.kind == "cuda" else schedule_cpu.schedule(func)
        return self.add_scheduled(stem, module["main"])

    def add_scheduled(self, stem: str, func: tvm.tirx.PrimFunc) -> str:
        """Give a kernel a name."""
        name = re.sub(r"\W", "_", f"{stem}_{len(self.functions)}")
        self.functions[name] = func.with_attr("global_symbol", name)
        return name


def last_name(ops: Sequence[Op]) -> str:
    """The name of the last op, or of the last in its group."""
    last = ops[-1]
    return last.name if last.region is None else last.region.ops[-1].name
