# SPDX-License-Identifier: Apache-2.0
"""TVM's passes from scheduled kernels to code, with those watched that give wrong code for some kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from memc.runtime.codegen.expression_scopes import is_defined
from memc.runtime.codegen.flat_indices import flatten
from memc.runtime.codegen.vector_loops import TWO_VALUES, serialize_invariant


def pipeline_of(target: str) -> str:
    """The name of the pipeline for llvm or cuda, by which `tirx.build` finds it."""
    return f"memc_{target}"


def allocates(func: tvm.tirx.PrimFunc) -> bool:
    """Whether some block of a function allocates memory."""
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, lambda block: found.extend(block.alloc_buffers))])
    return bool(found)


def compact_allocations(module: tvm.ir.IRModule, _context: Any) -> tvm.ir.IRModule:
    """What blocks allocate becomes as small as can be.

    Functions that allocate nothing are left out: TVM looks at all their reads, in time that grows with their number's square.
    """
    kept = {name: func for name, func in module.functions.items() if not allocates(func)}
    compact = s_tir.transform.CompactBufferAllocation()
    if not kept:
        return compact(module)
    chosen = {name: func for name, func in module.functions.items() if name not in kept}
    made = tvm.ir.IRModule(kept, attrs=module.attrs)
    made.update(compact(tvm.ir.IRModule(chosen)))
    return made


def before_flattening() -> list[Any]:
    """Blocks and their bindings become loops."""
    t = s_tir.transform
    return [
        t.CanonicalizeLoop(),
        t.LowerCrossThreadReduction(),
        t.LowerInitBlock(),
        t.PlanAndUpdateBufferAllocationLocation(),
        t.ConvertBlocksToOpaque(),
        t.LiftThreadBinding(),
        tvm.transform.module_pass(compact_allocations, opt_level=0),
        t.UnifyThreadBinding(),
        t.LowerMatchBuffer(),
        t.StmtSimplify(),
        t.AnnotateIrregularLoop(),
        t.LowerOpaqueBlock(),
    ]


def after_flattening() -> list[Any]:
    """Loops are vectorized and unrolled."""
    return [
        tirx.transform.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
    ]


def vectorize(module: tvm.ir.IRModule) -> tvm.ir.IRModule:
    """The passes after flattening; loops that TVM cannot vectorize stay serial."""
    try:
        return tvm.ir.transform.Sequential(after_flattening())(module)
    except tvm.error.InternalError as error:
        if TWO_VALUES not in str(error):
            raise
        return tvm.ir.transform.Sequential(after_flattening())(serialize_invariant(module))


def after_sharing() -> list[Any]:
    """Threads meet, and host and device part."""
    return [
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        s_tir.transform.ThreadSync("shared"),
        s_tir.transform.ThreadSync("shared.dyn"),
        s_tir.transform.ThreadSync("warp"),
        s_tir.transform.LowerThreadAllreduce(),
        s_tir.transform.MergeSharedMemoryAllocations(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
    ]


def share_expressions(module: tvm.ir.IRModule) -> tvm.ir.IRModule:
    """Common subexpressions of each function computed once.

    TVM does not count what stands in the body of a `Let`, but replaces it there too: a kernel with an expression in such a
    body, and twice after it, would read a variable before it is defined. Those kernels stay as they are: the compilers of
    what TVM generates share expressions, too.
    """
    shared = tirx.transform.CommonSubexprElim()(module)
    kept = {name: func for name, func in module.functions.items() if not is_defined(shared[name])}
    shared.update(tvm.ir.IRModule(kept))
    return shared


def passes_for(target: str) -> Callable[[], tuple[Any, Any, Any]]:
    """The pipeline, in the form that TVM looks for."""

    def lower(module: tvm.ir.IRModule, _context: Any) -> tvm.ir.IRModule:
        module = tvm.ir.transform.Sequential(before_flattening())(module)
        module = vectorize(flatten(module, target))
        module = share_expressions(module)
        return tvm.ir.transform.Sequential(after_sharing())(module)

    def made() -> tuple[Any, Any, Any]:
        lowering = tvm.transform.module_pass(lower, opt_level=0)
        return lowering, compilation_pipeline.finalize_host_passes, compilation_pipeline.finalize_device_passes

    return made


for kind in ("llvm", "cuda"):
    compilation_pipeline.register_tir_pipeline(pipeline_of(kind), passes_for(kind))
