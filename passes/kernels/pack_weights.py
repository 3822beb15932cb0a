# SPDX-License-Identifier: Apache-2.0
"""pack-weights: library kernels that read weights in panels, which are laid out so when the artifact is written.

A weight is packed if every op that reads it has such a kernel for the same layout. The elements are the same, in another
order: neither the weights nor the arena take more bytes, and kernels need no workspace to pack them at each run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Optional

from memc.ir.core import Function, Op, Role, Value
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import LibraryKernel, lookup, main_op
from memc.passes.base import LibraryTarget, Pass, library_target


def pack_weights(function: Function, target: str) -> None:
    """Exchange the kernels of the ops whose weight can be packed. Ops that have no library kernel keep what they have."""
    returned = set(function.returns)
    for value, readers in function.uses().items():
        if value in returned or not is_weight(value):
            continue
        kernels = [packed_kernel(op, value, target) for op in dict.fromkeys(readers)]
        found = [(op, k) for op, k in zip(dict.fromkeys(readers), kernels) if k is not None]
        layouts = {k.packing(op) for op, k in found if k.packing is not None}
        if len(found) < len(kernels) or len(layouts) != 1:
            continue
        for op, kernel in found:
            op.plan = replace(op.plan, library_kernel=kernel.symbol)
            op.workspace = None


def is_weight(value: Value) -> bool:
    """Whether the value's bytes are written once, before all runs."""
    return value.role is Role.WEIGHT or (value.op is not None and value.op.name == "constant")


def packed_kernel(op: Op, weight: Value, target: str) -> LibraryKernel | None:
    """The kernel that can take the place of the op's library kernel and reads `weight`, operand 1 alone, in panels."""
    found = lookup(main_op(op).name)
    replaced = op.plan.library_kernel
    if found is None or replaced is None or [n for n, v in enumerate(op.operands) if v is weight] != [1]:
        return None
    fitting = (k for k in found.library if k.target == target and k.replaces == replaced)
    return next((k for k in fitting if k.supports(op)), None)


@dataclass(frozen=True)
class PackWeights(Pass):
    """Weights in the layout that the library kernels read fastest."""

    name: ClassVar[str] = "pack-weights"
    target: Optional[LibraryTarget] = None

    def apply(self, module: Module) -> None:
        for function in module.functions:
            pack_weights(function, library_target(self.target, module))
