# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for LLVM.

A kernel is either one elementwise or gathering block, or one reduction whose result an epilogue block (possibly a plain
copy) writes out. A reduction accumulates in a small local tile inside the epilogue's loops. Nothing is allocated
besides such tiles.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import Schedule

from memc.runtime.codegen.expressions import KernelError, walk

PARALLEL_WORK = 65_536
"""Fewer element operations than this run on the calling thread: waking the others costs more."""

VECTOR_BYTES = 64
TILE_BYTES = 1023
"""Most bytes of accumulators that a reduction keeps at once: what TVM puts on the stack (global scope only)."""


def schedule(func: tvm.tirx.PrimFunc) -> tvm.ir.IRModule:
    """The scheduled module of one kernel; the function is `main`."""
    sch = Schedule(tvm.ir.IRModule({"main": func}))
    blocks = [b for b in sch.get_child_blocks(sch.get_sblock("root"))]
    names = [sch.get(b).name_hint for b in blocks]
    if names == ["result"]:
        spread(sch, sch.get_sblock("result"), 1)
    elif names == ["reduced"]:
        sch.cache_write(sch.get_sblock("reduced"), 0, "global")
        reduction(sch, "reduced", sch.get(sch.get_consumers(sch.get_sblock("reduced"))[0]).name_hint)
    elif names == ["reduced", "result"]:
        reduction(sch, "reduced", "result")
    else:
        raise KernelError(f"unexpected blocks in a kernel: {names}")
    return sch.mod


def schedule_plainly(func: tvm.tirx.PrimFunc) -> tvm.ir.IRModule:
    """As `schedule`, in its simplest form: one element after another on one thread, with one accumulator.

    Raises KernelError if an element needs more than one: that would take memory beyond the arena.
    """
    sch = Schedule(tvm.ir.IRModule({"main": func}))
    names = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]
    if names == ["reduced"]:
        sch.cache_write(sch.get_sblock("reduced"), 0, "global")
    elif names not in (["result"], ["reduced", "result"]):
        raise KernelError(f"unexpected blocks in a kernel: {names}")
    if "reduced" in names:
        (consumer,) = sch.get_consumers(sch.get_sblock("reduced"))
        loops = sch.get_loops(consumer) or [sch.add_unit_loop(consumer)]
        sch.compute_at(sch.get_sblock("reduced"), loops[-1])
        block = sch.get_sblock("reduced")
        own = sch.get_loops(block)[len(loops) :]
        if math.prod(extents(sch, own)) != depth(sch, "reduced"):
            raise KernelError("an element of a kernel's result reads several sums")
    return sch.mod


def extents(sch: Schedule, loops: list[Any]) -> list[int]:
    return [int(sch.get(loop).extent) for loop in loops]


def spread(sch: Schedule, block: Any, work_per_element: int) -> Any:
    """Parallel outer loops and a vector innermost loop; returns the loop above the vector loop."""
    loops = sch.get_loops(block)
    if not loops:
        loops = [sch.add_unit_loop(block)]
    sizes = extents(sch, loops)
    work = work_per_element
    for size in sizes:
        work *= size
    inner = loops[-1]
    lanes = lane_count(sizes[-1], itemsize(sch, block))
    outer = loops[:-1]
    if lanes > 1:
        above, vector = sch.split(inner, [None, lanes])
        sch.vectorize(vector)
        outer = [*outer, above]
    if outer and work >= PARALLEL_WORK:
        sch.parallel(sch.fuse(*outer))


def itemsize(sch: Schedule, block: Any) -> int:
    """Bytes of the widest element that a block touches."""
    node = sch.get(block)
    regions = [*node.reads, *node.writes]
    return max(int(tvm.runtime.DataType(str(r.source.dtype)).itemsize) for r in regions)


def accumulator_bytes(sch: Schedule, reduced: str) -> int:
    written = sch.get(sch.get_sblock(reduced)).writes[0]
    return int(tvm.runtime.DataType(str(written.source.dtype)).itemsize)


def lane_count(extent: int, itemsize: int) -> int:
    """The most lanes of at most one vector register that divide the extent."""
    lanes = VECTOR_BYTES // itemsize
    while lanes > 1 and extent % lanes:
        lanes //= 2
    return lanes


def reduction(sch: Schedule, reduced: str, consumer: str) -> None:
    """Accumulate in tiles inside the loops of the consumer."""
    block = sch.get_sblock(consumer)
    loops = sch.get_loops(block) or [sch.add_unit_loop(block)]
    sizes = extents(sch, loops)
    work = math.prod(sizes) * depth(sch, reduced)
    most = TILE_BYTES // accumulator_bytes(sch, reduced)
    tile = max((t for t in range(1, min(sizes[-1], most) + 1) if sizes[-1] % t == 0), default=1)
    rows = reads_rows(sch, reduced)
    if rows:
        tile = max(t for t in (1, 2, 4, 8) if sizes[-1] % t == 0)
    above, _ = sch.split(loops[-1], [None, tile])
    outer = sch.fuse(*loops[:-1], above)
    sch.compute_at(sch.get_sblock(reduced), outer)
    if work >= PARALLEL_WORK:
        sch.parallel(outer)
    accumulate(sch, reduced, rows)


def accumulate(sch: Schedule, reduced: str, rows: bool) -> None:
    """Order the loops of a tile: all its accumulators for each step of the reduction, in vectors where that goes."""
    block = sch.get_sblock(reduced)
    kinds = [axis.iter_type for axis in sch.get(block).iter_vars]
    own = sch.get_loops(block)[1:]
    spatial = [loop for loop, kind in zip(own, kinds) if kind != tirx.IterVar.CommReduce]
    steps = [loop for loop, kind in zip(own, kinds) if kind == tirx.IterVar.CommReduce]
    if len(own) != len(kinds) or not steps:
        return
    lanes = 1
    if spatial and not rows:
        lanes = lane_count(extents(sch, spatial[-1:])[0], accumulator_bytes(sch, reduced))
    sch.reorder(*steps, *spatial)
    if lanes > 1:
        _, vector = sch.split(spatial[-1], [None, lanes])
        sch.vectorize(vector)
    elif rows and spatial:
        sch.unroll(spatial[-1])
    sch.decompose_reduction(block, steps[0])


def depth(sch: Schedule, reduced: str) -> int:
    """Steps of a reduction."""
    axes = sch.get(sch.get_sblock(reduced)).iter_vars
    return math.prod(int(axis.dom.extent) for axis in axes if axis.iter_type == tirx.IterVar.CommReduce)


def reads_rows(sch: Schedule, reduced: str) -> bool:
    """Whether neighbouring steps of the reduction, and not neighbouring results, read neighbouring elements."""
    block = sch.get(sch.get_sblock(reduced))
    steps = [axis.var for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
    last = [
        [v for v in walk(load.indices[-1], tirx.Var)]
        for load in walk(block.body, tvm.ir.TensorLoad)
        if len(load.indices)
    ]
    spatial = [axis.var for axis in block.iter_vars if axis.iter_type != tirx.IterVar.CommReduce]
    neighbours = spatial and any(v.same_as(spatial[-1]) for used in last[1:] for v in used)
    return not neighbours and any(v.same_as(s) for used in last for v in used for s in steps)
