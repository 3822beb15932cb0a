# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for CUDA: one thread for each result element, accumulators in registers, no shared memory."""

from __future__ import annotations

import tvm
from tvm.s_tir import Schedule

from memc.runtime.codegen.expressions import KernelError
from memc.runtime.target import Target

THREADS = 256
"""Threads per block; small kernels take fewer."""


def schedule(func: tvm.tirx.PrimFunc, target: Target) -> tvm.ir.IRModule:
    """The scheduled module of one kernel; the function is `main`."""
    sch = Schedule(tvm.ir.IRModule({"main": func}))
    names = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]
    if names == ["result"]:
        consumer, reduced = "result", None
    elif names == ["reduced"]:
        sch.cache_write(sch.get_sblock("reduced"), 0, "local")
        consumer, reduced = sch.get(sch.get_consumers(sch.get_sblock("reduced"))[0]).name_hint, "reduced"
    elif names == ["reduced", "result"]:
        consumer, reduced = "result", "reduced"
        sch.set_scope(sch.get_sblock("reduced"), 0, "local")
    else:
        raise KernelError(f"unexpected blocks in a kernel: {names}")
    block = sch.get_sblock(consumer)
    loops = sch.get_loops(block) or [sch.add_unit_loop(block)]
    flat = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    extent = int(sch.get(flat).extent)
    threads = min(THREADS, 1 << max(extent - 1, 0).bit_length())
    outer, inner = sch.split(flat, [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    if reduced is not None:
        sch.compute_at(sch.get_sblock(reduced), inner)
    return sch.mod
