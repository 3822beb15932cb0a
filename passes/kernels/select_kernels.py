# SPDX-License-Identifier: Apache-2.0
"""select-kernels: library kernels in place of generated ones, with workspaces from memory that is free anyway.

An op's plan gets `library_kernel` (the packed function's symbol), and a workspace value if the kernel takes one. The
size is what is free under the peak at that op, between the least the kernel runs with and the most it can use. A
second run (say, with `workspace=fit` after an order was found for the least workspaces) enlarges those of the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Optional

from memc.ir.checked_options import Alignment, Amount
from memc.ir.core import Function, Op, Value, fresh_names
from memc.ir.liveness import lifetimes, live_bytes
from memc.ir.module import Module
from memc.ir.op_queries import flops
from memc.ir.ops.shared.op_def import LibraryKernel, lookup, main_op
from memc.ir.sizes import align
from memc.ir.snapshot import is_unplaced
from memc.ir.types import DType, TensorType
from memc.passes.base import LibraryTarget, Pass, alignment_of, library_target
from memc.passes.placement.alias_plan import plan_aliases


def library_kernel(op: Op, target: str) -> LibraryKernel | None:
    """The first library kernel of `target` that supports the op, or the fused group as it begins with an op, with weights
    as they are."""
    definition = lookup(main_op(op).name)
    if definition is None:
        return None
    usual = (k for k in definition.library if k.target == target and k.packing is None)
    return next((k for k in usual if (k.groups or op.region is None) and k.supports(op)), None)


def select_kernels(function: Function, target: str, workspace: str, slow_flops: int, alignment: int) -> None:
    """Choose for every op of `function` that has no kernel yet, and see to the workspaces of those that have one.

    Where even the least workspace would raise the peak, the generated kernel is kept, unless the op takes
    `slow_flops` operations or more. `workspace` is `fit` (use what is free) or `least`.
    """
    found = [(index, op, library_kernel(op, target)) for index, op in enumerate(function.ops)]
    chosen = [
        (index, op, kernel) for index, op, kernel in found if kernel and op.plan.library_kernel in (None, kernel.symbol)
    ]
    if not chosen:
        return
    live = _live(function, alignment)
    peak = max(live, default=0)
    names = fresh_names((v.name for v in function.values()), "workspace")
    for index, op, kernel in chosen:
        own = 0 if op.workspace is None else align(op.workspace.type.nbytes, alignment)
        least, most = kernel.workspace(op) if kernel.workspace is not None else (0, 0)
        free = (peak - live[index] + own) // alignment * alignment
        size = least if workspace == "least" else max(least, min(most, free))
        if op.plan.library_kernel is None:
            if align(least, alignment) > free and flops(op) < slow_flops:
                continue
            op.plan = replace(op.plan, library_kernel=kernel.symbol)
        placed = op.workspace is not None and op.workspace.placement is not None
        if size > (0 if op.workspace is None else op.workspace.type.nbytes) and not placed:
            name = next(names) if op.workspace is None else op.workspace.name
            op.workspace = Value(name, TensorType(DType.U8, (size,)), op)


def _live(function: Function, alignment: int) -> list[int]:
    """Live bytes at each op, workspaces included, with the aliases that the function will have."""
    if is_unplaced(function):
        return [int(n) for n in plan_aliases(function, alignment).live]
    return live_bytes(lifetimes(function), len(function.ops), alignment)


@dataclass(frozen=True)
class SelectKernels(Pass):
    """Library kernels and their workspaces."""

    name: ClassVar[str] = "select-kernels"
    target: Optional[LibraryTarget] = None
    workspace: Literal["fit", "least"] = "fit"
    """`fit`: as much as is useful and free; `least`: as little as possible."""
    slow_flops: Amount = 1_000_000
    """From this many operations on, an op gets its library kernel even if the workspace raises the peak."""
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        target, alignment = library_target(self.target, module), alignment_of(self.alignment, module)
        for function in module.functions:
            select_kernels(function, target, self.workspace, self.slow_flops, alignment)
