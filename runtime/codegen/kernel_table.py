# SPDX-License-Identifier: Apache-2.0
"""The kernels of a program: made once for all ops that are the same but for their operands."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi

from memc.ir.core import Op, Value
from memc.ir.errors import MemcError
from memc.ir.types import TensorType
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import schedule_cpu, schedule_gpu
from memc.runtime.codegen.copy_into_box import piece_kernel
from memc.runtime.codegen.fallbacks import Retreats
from memc.runtime.codegen.horizontal_fusion import joint_key, lower_joint
from memc.runtime.codegen.lower_op import Kernel, kernel_key, lower_op
from memc.runtime.codegen.row_fusion import lower_rows, rows_key
from memc.runtime.codegen.row_plan import RowPlan


@dataclass(frozen=True)
class NamedKernel:
    """A kernel of an op, by the name it is called under."""

    name: str
    operands: tuple[int, ...]
    """The operands of the op that it is given, in order."""
    result: int
    """The result that it writes, given last."""


@dataclass
class KernelTable:
    """All kernels so far, scheduled for `target`. Those that cannot be lowered or scheduled go into `retreats`."""

    target: CodeTarget
    retreats: Retreats = field(default_factory=Retreats)
    functions: dict[str, tvm.tirx.PrimFunc] = field(default_factory=dict)
    known: dict[Any, tuple[NamedKernel, ...]] = field(default_factory=dict)
    """Kernels of ops by themselves."""
    joints: dict[Any, str] = field(default_factory=dict)
    """Kernels of several ops."""
    keys: dict[str, Any] = field(default_factory=dict)
    """The key of each function."""
    told: dict[str, str] = field(default_factory=dict)
    """A checksum of each function."""
    users: dict[Any, list[Op]] = field(default_factory=dict)
    """The ops that need the kernels of a key."""
    checks: dict[TensorType, str] = field(default_factory=dict)
    """The functions that check what callers give, by its type."""

    def kernels(self, op: Op, in_place: int | None) -> tuple[NamedKernel, ...]:
        """The kernels of an op, in calling order; none if they have failed, which `retreats.check` tells."""
        stem = op.name if op.region is None else "fused_" + op.region.ops[-1].name
        return self._single(kernel_key(op, in_place), op, stem, lambda: lower_op(op, self.target.kind, in_place))

    def piece(self, op: Op, operand: Value, axis: int) -> tuple[NamedKernel, ...]:
        """The kernel that copies an operand into part of the result of `op`, from an index on `axis` on that it is given last."""
        given, result = operand.type, op.result.type
        return self._single(
            ("piece", given, result, axis), op, "piece", lambda: [Kernel(piece_kernel(given, result, axis), (0,), 0)]
        )

    def check(self, type: TensorType) -> str:
        """The name of the function that checks a caller's tensor."""
        return self.checks.setdefault(type, f"argument_{len(self.checks)}")

    def _single(self, key: Any, op: Op, stem: str, lower: Callable[[], Sequence[Kernel]]) -> tuple[NamedKernel, ...]:
        users = self.users.setdefault(key, [])
        users.append(op)
        while key not in self.known:
            plainly = key in self.retreats.plain
            try:
                made = [(kernel, self.finished(kernel, plainly)) for kernel in lower()]
            except (MemcError, MemoryError):
                raise
            except Exception as error:
                self.retreats.make_plain(key, users, error)
                if key in self.retreats.failed:
                    self.known[key] = ()
                continue
            named = [NamedKernel(self.add(stem, func, key), kernel.operands, kernel.result) for kernel, func in made]
            self.known[key] = tuple(named)
        return self.known[key]

    def joint(self, ops: Sequence[Op]) -> str | None:
        """The name of the kernel of several ops, which takes their `parameters`; None if they have kernels of their own."""
        kind = self.target.kind
        stem = f"joint_{last_name(ops)}"
        return self.joined(joint_key(ops), ops, stem, lambda: self.scheduled(lower_joint(ops, kind), False))

    def rows(self, ops: Sequence[Op], plan: RowPlan) -> str | None:
        """As `joint`, of several ops on the same rows; the kernel takes what `plan` says."""
        kind = self.target.kind
        return self.joined(rows_key(ops, plan), ops, f"rows_{last_name(ops)}", lambda: lower_rows(ops, plan, kind))

    def joined(self, key: Any, ops: Sequence[Op], stem: str, make: Callable[[], tvm.tirx.PrimFunc]) -> str | None:
        """As `joint`, of several ops whose scheduled kernel `make` makes."""
        self.users.setdefault(key, list(ops))
        if key not in self.joints and key not in self.retreats.apart:
            try:
                self.joints[key] = self.add(stem, make(), key)
            except (MemcError, MemoryError):
                raise
            except Exception as error:
                self.retreats.take_apart(key, ops, error)
        return self.joints.get(key)

    def retreat(self, broken: Mapping[str, Exception]) -> None:
        """Take note of functions that do not compile, for the next table."""
        for name, error in broken.items():
            key = self.keys[name]
            if key in self.joints:
                self.retreats.take_apart(key, self.users[key], error)
            else:
                self.retreats.make_plain(key, self.users[key], error)

    def finished(self, kernel: Kernel, plainly: bool) -> tvm.tirx.PrimFunc:
        return kernel.func if kernel.ready else self.scheduled(kernel.func, plainly)

    def scheduled(self, func: tvm.tirx.PrimFunc, plainly: bool) -> tvm.tirx.PrimFunc:
        if self.target.kind == "cuda":
            return schedule_gpu.schedule(func, self.target, plainly)["main"]
        return (schedule_cpu.schedule_plainly if plainly else schedule_cpu.schedule)(func)["main"]

    def add(self, stem: str, func: tvm.tirx.PrimFunc, key: Any) -> str:
        """Give a kernel a name: the same in all programs, so that they can share its code."""
        # The text does not have all digits of numbers, the hash is a short one.
        told = hashlib.sha256(f"{tvm_ffi.structural_hash(func)} {func.script()}".encode()).hexdigest()
        name = re.sub(r"\W", "_", f"{stem}_{told[:8]}")
        while name in self.functions:
            name += "_"
        self.told[name] = told
        self.functions[name] = func.with_attr("global_symbol", name)
        self.keys[name] = key
        return name


def last_name(ops: Sequence[Op]) -> str:
    """The name of the last op, or of the last in its group."""
    last = ops[-1]
    return last.name if last.region is None else last.region.ops[-1].name
