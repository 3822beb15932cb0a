# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for LLVM.

A kernel is either one elementwise or gathering block, or one reduction whose result an epilogue block (possibly a plain
copy) writes out. A reduction accumulates in a small local tile inside the epilogue's loops. Nothing is allocated
besides such tiles.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import Schedule

from memc.runtime.codegen.expressions import KernelError

PARALLEL_WORK = 65_536
"""Fewer element operations than this run on the calling thread: waking the others costs more."""

VECTOR_BYTES = 64
TILE = 256
"""Most accumulators of a reduction that are kept at once, in elements."""


def schedule(func: tvm.tirx.PrimFunc) -> tvm.ir.IRModule:
    """The scheduled module of one kernel; the function is `main`."""
    sch = Schedule(tvm.ir.IRModule({"main": func}))
    blocks = [b for b in sch.get_child_blocks(sch.get_sblock("root"))]
    names = [sch.get(b).name_hint for b in blocks]
    if names == ["result"]:
        spread(sch, sch.get_sblock("result"), 1)
    elif names == ["reduced"]:
        sch.cache_write(sch.get_sblock("reduced"), 0, "local")
        reduction(sch, "reduced", sch.get(sch.get_consumers(sch.get_sblock("reduced"))[0]).name_hint)
    elif names == ["reduced", "result"]:
        reduction(sch, "reduced", "result")
    else:
        raise KernelError(f"unexpected blocks in a kernel: {names}")
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
    # TVM cannot store one bf16 element to all lanes of a vector.
    lanes = 1 if touches_bf16(sch, block) else lane_count(sizes[-1], itemsize(sch, block))
    outer = loops[:-1]
    if lanes > 1:
        above, vector = sch.split(inner, [None, lanes])
        sch.vectorize(vector)
        outer = [*outer, above]
    if outer and work >= PARALLEL_WORK:
        sch.parallel(sch.fuse(*outer))


def touches_bf16(sch: Schedule, block: Any) -> bool:
    node = sch.get(block)
    return any("bfloat16" in str(r.source.dtype) for r in [*node.reads, *node.writes])


def itemsize(sch: Schedule, block: Any) -> int:
    """Bytes of the widest element that a block touches."""
    node = sch.get(block)
    regions = [*node.reads, *node.writes]
    return max(tvm.runtime.DataType(str(r.source.dtype)).itemsize for r in regions)


def lane_count(extent: int, itemsize: int) -> int:
    """The most lanes of at most one vector register that divide the extent."""
    lanes = VECTOR_BYTES // itemsize
    while lanes > 1 and extent % lanes:
        lanes //= 2
    return lanes


def reduction(sch: Schedule, reduced: str, consumer: str) -> None:
    """Accumulate in local tiles inside the loops of the consumer."""
    sch.set_scope(sch.get_sblock(reduced), 0, "local")
    block = sch.get_sblock(consumer)
    loops = sch.get_loops(block)
    if not loops:
        loops = [sch.add_unit_loop(block)]
    sizes = extents(sch, loops)
    depth = 1
    for axis in sch.get(sch.get_sblock(reduced)).iter_vars:
        if axis.iter_type == tirx.IterVar.CommReduce:
            depth *= int(axis.dom.extent)
    work = depth
    for size in sizes:
        work *= size
    tile = max((t for t in range(1, min(sizes[-1], TILE) + 1) if sizes[-1] % t == 0), default=1)
    above, within = sch.split(loops[-1], [None, tile])
    outer = sch.fuse(*loops[:-1], above)
    sch.compute_at(sch.get_sblock(reduced), outer)
    if work >= PARALLEL_WORK:
        sch.parallel(outer)
