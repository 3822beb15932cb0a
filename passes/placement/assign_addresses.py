# SPDX-License-Identifier: Apache-2.0
"""assign-addresses: every storage in the arena, and in the space `host`, gets its byte offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Optional

from memc.ir.checked_options import Alignment, OneOf
from memc.ir.copies import has_copies, with_host_space
from memc.ir.core import Function, Placement, Value, fresh_names
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.liveness import ARENA, Lifetime, lifetimes, lower_bound, output_roots, placed_space
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import chosen_kernel
from memc.ir.sizes import align
from memc.ir.spaces import HOST, is_shared_buffer
from memc.ir.types import DType, TensorType
from memc.passes.base import Pass, alignment_of
from memc.passes.placement.in_place import alias_copies
from memc.passes.placement.share import color
from memc.solvers.placement import Buffer, Problem, solve, solver_names

STACKED = ("none", "sequential")
"""Solvers that lay blocks out one after another."""


def known_solvers() -> list[str]:
    """What `assign_addresses` takes as `solver`."""
    return sorted({*STACKED, *solver_names()})


@dataclass(frozen=True)
class Block:
    """Storages that start at the same address: one storage, with a gap where it has two lifetimes, or all of a shared buffer."""

    lives: tuple[Lifetime, ...]

    def buffer(self) -> Buffer:
        """The bytes and the time steps that the block needs."""
        if len(self.lives) > 1 and self.lives[0].root is self.lives[1].root:
            return Buffer.of_lives(self.lives[0].nbytes, tuple((life.lower, life.upper) for life in self.lives))
        return Buffer(
            max(life.nbytes for life in self.lives),
            min(life.lower for life in self.lives),
            max(life.upper for life in self.lives),
        )


def blocks_of(lives: Sequence[Lifetime], shared: bool) -> list[Block]:
    """One block per storage, whatever its lifetimes, or per `buffer.N` where `share` made those and `shared` asks for them."""
    groups: dict[object, list[Lifetime]] = {}
    for life in lives:
        place = life.root.placement
        in_buffer = shared and place is not None and is_shared_buffer(place.space)
        groups.setdefault(place.space if in_buffer and place else life.root, []).append(life)
    return [Block(tuple(group)) for group in groups.values()]


def assign_addresses(function: Function, solver: str, alignment: int, time_limit: float | None = None) -> None:
    """Place everything that lives in the arena, and in the space `host` of a function with copies, roots and aliases alike; what
    is placed in another space stays there.

    `none` gives every storage its own bytes, `sequential` every block, in order of definition. Others are native
    solvers, which get `time_limit` seconds, or without it work bounded by count; `auto` also tries Chen et al.'s sharing,
    so that it never does worse than that. Library kernels have at least the workspace afterwards that they ask for.
    """
    alias_copies(function)
    _add_workspaces(function)
    for space in (ARENA, HOST) if has_copies(function) else (ARENA,):
        _assign(function, space, solver, alignment, time_limit)


def _require_known_spaces(module: Module) -> None:
    """Raise UsageError for a value that stays in a space, given with the text, which the target does not have."""
    known = [space.name for space in module.target.spaces if space.holds == "values"]
    for function in module.functions:
        outside = output_roots(function)
        for value in (v for op in function.ops if op.name != "constant" for v in op.results):
            root = value.root
            space = ARENA if root.op is None or root in outside or root.placement is None else root.placement.space
            if space not in known and not is_shared_buffer(space):
                raise UsageError(
                    f"assign-addresses: @{function.name}, %{value.name}: expected a space of the target "
                    f"({', '.join(known)}), got @{space}; leave its place out"
                )


def _add_workspaces(function: Function) -> None:
    """The least workspace for each library kernel that has less, as `decompose` plans some and `select-kernels` may not follow."""
    names = fresh_names((v.name for v in function.values()), "workspace")
    for op in function.ops:
        kernel = chosen_kernel(op)
        least = 0 if kernel is None or kernel.workspace is None else kernel.workspace(op)[0]
        if least > (0 if op.workspace is None else op.workspace.type.nbytes):
            op.workspace = Value(next(names), TensorType(DType.U8, (least,)), op)


def _assign(function: Function, space: str, solver: str, alignment: int, time_limit: float | None) -> None:
    lives = lifetimes(function, space)
    offsets = _offsets(lives, solver, alignment, time_limit)
    base = dict(zip((life.root for life in lives), offsets))
    for value in function.values():
        start = base.get(value.root)
        if start is not None:
            value.placement = Placement(space, start + value.offset_in_root)
        elif placed_space(value.root) == space:
            value.placement = None


def _offsets(lives: Sequence[Lifetime], solver: str, alignment: int, time_limit: float | None) -> list[int]:
    """The offset of each storage."""
    blocks = blocks_of(lives, shared=solver != "none")
    buffers = [block.buffer() for block in blocks]
    if solver in STACKED:
        offsets = stack([b.size for b in buffers], alignment)
    else:
        solution = solve(Problem(buffers, alignment), solver, time_limit=time_limit)
        offsets = list(solution.offsets)
        if solver == "auto" and len(blocks) == len(lives) and solution.peak > lower_bound(lives, alignment):
            offsets = min(offsets, shared_offsets(lives, alignment), key=lambda o: _end(buffers, o, alignment))
    base = {id(life): offset for block, offset in zip(blocks, offsets) for life in block.lives}
    return [base[id(life)] for life in lives]


def stack(sizes: Sequence[int], alignment: int) -> list[int]:
    """Offsets of blocks one after another."""
    offsets: list[int] = []
    end = 0
    for size in sizes:
        offsets.append(end)
        end += align(size, alignment)
    return offsets


def shared_offsets(lives: Sequence[Lifetime], alignment: int) -> list[int]:
    """Offsets of storages in the buffers that `share{strategy=color}` would make, laid out one after another."""
    numbers = color(lives, "color", alignment)
    sizes = [0] * (max(numbers, default=-1) + 1)
    for life, number in zip(lives, numbers):
        sizes[number] = max(sizes[number], life.nbytes)
    starts = stack(sizes, alignment)
    return [starts[number] for number in numbers]


def _end(buffers: Sequence[Buffer], offsets: Sequence[int], alignment: int) -> int:
    return max((offset + align(buffer.size, alignment) for buffer, offset in zip(buffers, offsets)), default=0)


@dataclass(frozen=True)
class AssignAddresses(Pass):
    """Give every storage in the arena, and in `host`, its address. The plan is checked afterwards."""

    name: ClassVar[str] = "assign-addresses"
    plans: ClassVar[bool] = True
    solver: Annotated[str, OneOf(known_solvers)] = "auto"
    """`none`, `sequential`, or one of the native solvers."""
    alignment: Optional[Alignment] = None
    """Bytes; every offset is a multiple of it."""
    time_limit: Seconds | None = None
    """Wall time for each function; `none` bounds the work by count, so that every run gives the same plan."""

    def apply(self, module: Module) -> None:
        module.target = with_host_space(module.target, module.functions)
        _require_known_spaces(module)
        for function in module.functions:
            assign_addresses(function, self.solver, alignment_of(self.alignment, module), self.time_limit)
