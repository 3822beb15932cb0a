# SPDX-License-Identifier: Apache-2.0
"""select-workspace: library kernels get the memory that lies free in the arena while they run.

The static form of Dymem's dynamic workspace (Yang & Cheng 2020, section 4.2): once all addresses are known, so is the
largest gap between what lives during a call. A workspace placed there lets a faster algorithm run and costs no byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Optional

from memc.ir.checked_options import Alignment, ByteCount
from memc.ir.copies import has_copies
from memc.ir.core import Function, Op, Placement, Value, fresh_names
from memc.ir.function_footprint import footprint_of
from memc.ir.liveness import ARENA, Lifetime, arena_bytes, lifetimes
from memc.ir.module import Module
from memc.ir.sizes import align
from memc.ir.types import DType, TensorType
from memc.passes.base import LibraryTarget, Pass, alignment_of, library_target
from memc.passes.kernels.select_kernels import library_kernel


def select_workspace(function: Function, target: str, beyond: int, alignment: int, end: int = 0) -> None:
    """Enlarge the workspaces of a placed function's library kernels, up to what each can use.

    A workspace lies in the largest gap during its op, below the end of the arena or, where that is larger, below `end`; one that
    would be smaller than `beyond` bytes may take up to that much even if the arena grows.
    """
    end = max(arena_bytes(function, alignment), end)
    live: dict[Value, Lifetime] = {}
    begins: dict[int, list[Lifetime]] = {}
    for life in lifetimes(function):
        begins.setdefault(life.lower, []).append(life)
    names = fresh_names((v.name for v in function.values()), "workspace")
    for index, op in enumerate(function.ops):
        live = {root: life for root, life in live.items() if life.upper > index}
        live.update((life.root, life) for life in begins.get(index, ()))
        most = most_useful(op, target)
        own = 0 if op.workspace is None else op.workspace.type.nbytes
        if most <= own:
            continue
        others = [life for root, life in live.items() if root is not op.workspace]
        offset, size = largest_gap(others, end, beyond, alignment)
        size = min(size, most)
        if size > own:
            name = next(names) if op.workspace is None else op.workspace.name
            op.workspace = Value(name, TensorType(DType.U8, (size,)), op, placement=Placement(ARENA, offset))


def end_within(module: Module, function: Function, budget: int, alignment: int) -> int:
    """The end of the arena of a placed function that takes `budget` bytes with its weights, states, inputs and outputs. 0 where
    the budget has changed nothing: such a function is to be what it is without one."""
    if not has_copies(function) and not any(op.plan.recompute for op in function.ops):
        return 0
    taken = footprint_of(function, replace(module.target, alignment=alignment))
    return (budget - (taken.peak - taken[ARENA])) // alignment * alignment


def most_useful(op: Op, target: str) -> int:
    """Bytes of workspace beyond which the op's library kernel has no use for more; 0 for other ops."""
    kernel = library_kernel(op, target) if op.plan.library_kernel is not None else None
    if kernel is None or kernel.workspace is None or op.plan.library_kernel != kernel.symbol:
        return 0
    return kernel.workspace(op)[1]


def largest_gap(lives: Iterable[Lifetime], end: int, beyond: int, alignment: int) -> tuple[int, int]:
    """Offset and bytes of the largest gap between placed storages in [0, end), or after the last, where `beyond` bytes
    are free in any case."""
    found, at = (0, 0), 0
    for low, high in sorted(_extent(life) for life in lives):
        if low - at > found[1]:
            found = (at, low - at)
        at = max(at, align(high, alignment))
    last = max(end - at, beyond // alignment * alignment)
    return (at, last) if last > found[1] else found


def _extent(life: Lifetime) -> tuple[int, int]:
    assert life.root.placement is not None
    return life.root.placement.offset, life.root.placement.offset + life.nbytes


@dataclass(frozen=True)
class SelectWorkspace(Pass):
    """Workspaces in the arena's gaps. The plan is checked afterwards."""

    name: ClassVar[str] = "select-workspace"
    plans: ClassVar[bool] = True
    target: Optional[LibraryTarget] = None
    beyond: ByteCount = 0
    """Bytes that a call may have even if the arena grows."""
    within: Optional[ByteCount] = None
    """Bytes of a memory budget, up to which workspaces may make the arena of a function larger that recomputes or copies to keep it."""
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        alignment = alignment_of(self.alignment, module)
        for function in module.functions:
            end = 0 if self.within is None else end_within(module, function, self.within, alignment)
            select_workspace(function, library_target(self.target, module), self.beyond, alignment, end)
