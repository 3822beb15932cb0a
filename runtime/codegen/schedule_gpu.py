# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for CUDA: one thread for each result element, or a team of threads that share one's reduction.

A reduction that reads every element about once (a mean, the parts of softmax and of layer norm, a bias's gradient) has
few results with many terms each. Its terms are dealt to the threads of a team, neighbours in memory to neighbouring
threads, and their parts are combined with warp shuffles. Which thread sums what is fixed: results repeat bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ScheduleError

from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import reducers
from memc.runtime.codegen.expressions import KernelError, dtype_of, walk

THREADS = 256
"""Threads per block; small kernels take fewer."""

WARP = 32

MOST_TEAM = 1024
"""Threads that share one reduction at most."""

LEAST_TERMS = 32
"""Terms from which a reduction is shared."""

FEW_RESULTS = 1 << 14
"""Results that do not fill the device with one thread for each."""

SHARED = ("float32", "float64", "int32", "int64", "uint32", "uint64")
"""Types of sums, products and extrema that can be shared."""


def tell_reducer(kind: str) -> None:
    """Tell TVM that our extrema of floats, and our sums and products of integers, are reductions whose parts it may combine in
    any order."""

    def combined(lhs: Any, rhs: Any) -> list[Any]:
        return [reducers.combine(kind, lhs[0], rhs[0], "cuda")]

    def neutral(values: Any) -> list[Any]:
        return [reducers.identity(kind, dtype_of(values[0]))]

    # TVM lets go of these after Python has ended, so the table of global functions, which stays, must hold them too.
    held = []
    for name, function in (("combined", combined), ("neutral", neutral)):
        tvm_ffi.register_global_func(f"memc.reducer.{kind}.{name}", function, override=True)
        held.append(tvm_ffi.get_global_func(f"memc.reducer.{kind}.{name}"))
    tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")(1, *held)


for reducer in ("max", "min", "sum", "prod"):
    tell_reducer(reducer)


def schedule(func: tvm.tirx.PrimFunc, target: CodeTarget, plainly: bool = False) -> tvm.ir.IRModule:
    """The scheduled module of one kernel; the function is `main`. `plainly`: without teams."""
    sch = Schedule(tvm.ir.IRModule({"main": func}))
    names = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]
    if names == ["result"]:
        consumer, reduced = "result", None
    elif names == ["reduced"]:
        sch.cache_write(sch.get_sblock("reduced"), 0, "local")
        consumer, reduced = sch.get(sch.get_consumers(sch.get_sblock("reduced"))[0]).name_hint, "reduced"
    elif names[0] == "result0":
        return schedule_joint(sch, names)
    elif names == ["reduced", "result"]:
        consumer, reduced = "result", "reduced"
        sch.set_scope(sch.get_sblock("reduced"), 0, "local")
    else:
        raise KernelError(f"unexpected blocks in a kernel: {names}")
    block = sch.get_sblock(consumer)
    loops = sch.get_loops(block) or [sch.add_unit_loop(block)]
    flat = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    results = int(sch.get(flat).extent)
    if reduced is not None and not plainly and is_shared(sch.get(sch.get_sblock(reduced)), results):
        attempt = sch.copy()
        try:
            share_reduction(attempt, reduced, block, flat, THREADS)
            return attempt.mod
        except ScheduleError:  # Teams beside each other would begin in the middle of an axis.
            share_reduction(sch, reduced, block, flat, 1)
            return sch.mod
    threads = min(THREADS, 1 << max(results - 1, 0).bit_length())
    outer, inner = sch.split(flat, [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    if reduced is not None:
        sch.compute_at(sch.get_sblock(reduced), inner)
    return sch.mod


def schedule_joint(sch: Schedule, names: Sequence[str]) -> tvm.ir.IRModule:
    """One thread for the same element of several results."""
    flat = []
    for name in names:
        block = sch.get_sblock(name)
        loops = sch.get_loops(block) or [sch.add_unit_loop(block)]
        flat.append(sch.fuse(*loops) if len(loops) > 1 else loops[0])
    every = sch.merge(*flat)
    results = int(sch.get(every).extent)
    outer, inner = sch.split(every, [None, min(THREADS, 1 << max(results - 1, 0).bit_length())])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    return sch.mod


def extents(block: Any, reduce: bool) -> list[int]:
    """The extents of a block's loops that reduce, or of those that do not."""
    return [int(v.dom.extent) for v in block.iter_vars if (v.iter_type == tirx.IterVar.CommReduce) == reduce]


def is_shared(block: Any, results: int) -> bool:
    """Whether threads should share each of the reductions of a kernel with so many results."""
    terms, sums = math.prod(extents(block, True)), math.prod(extents(block, False))
    if terms < LEAST_TERMS or sums != results or str(block.writes[0].source.dtype) not in SHARED:
        return False
    largest = max((elements(r) for r in block.reads), default=0)
    return 2 * largest >= sums * terms or sums <= FEW_RESULTS and terms >= 8 * LEAST_TERMS


def elements(read: Any) -> int:
    """The number of elements of the buffer that a region is part of."""
    return math.prod(int(n) for n in read.source.shape)


def is_along_rows(block: Any) -> bool:
    """Whether terms that follow one another are neighbours in memory, as far as the largest operand says."""
    summed = [v.var for v in block.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    if not block.reads:
        return True
    read = max(block.reads, key=elements)
    axes = [r.min for r, extent in zip(read.region, read.source.shape) if int(extent) > 1]
    return not axes or any(v.same_as(s) for v in walk(axes[-1], tirx.Var) for s in summed)


def share_reduction(sch: Schedule, reduced: str, consumer: Any, flat: Any, threads: int) -> None:
    """Teams along threadIdx.x, several in a block of `threads` if they are small; or along threadIdx.y where it is the
    results that are neighbours in memory, 32 of them in a block (1 if `threads` is)."""
    block = sch.get(sch.get_sblock(reduced))
    terms, results = math.prod(extents(block, True)), math.prod(extents(block, False))
    rows = is_along_rows(block)
    if rows:
        # Four terms a thread keep a warp's loads busy; more threads only where few teams must fill the device.
        team = WARP
        while team < MOST_TEAM and terms >= 8 * team and (team < THREADS or results < FEW_RESULTS // team * 4):
            team *= 2
        beside, team_axis, other_axis = max(1, min(threads // team, results)), "threadIdx.x", "threadIdx.y"
    else:
        team = min(MOST_TEAM // WARP, 1 << (terms // 4).bit_length() - 1)
        beside, team_axis, other_axis = min(WARP, threads), "threadIdx.y", "threadIdx.x"
    grid, mine = sch.split(flat, [None, beside])
    sch.bind(grid, "blockIdx.x")
    sch.bind(mine, other_axis)
    # The result is stored by the team's first thread.
    one = sch.add_unit_loop(consumer)
    _, first = sch.split(one, [None, team])
    sch.bind(first, team_axis)
    found = sch.get_sblock(reduced)
    sch.compute_at(found, mine)
    loops = sch.get_loops(found)[-sum(extent > 1 for extent in extents(block, True)) :]  # Those of one turn are gone.
    every = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    _, lane = sch.split(every, [None, team])
    sch.bind(lane, team_axis)
