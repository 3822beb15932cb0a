# SPDX-License-Identifier: Apache-2.0
"""Generated CUDA kernels on the host: their source is compiled by the C++ compiler, and their threads are fibers."""

from __future__ import annotations

import ctypes
import importlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from memc.ir.core import Function, Op, Role, Value
from memc.ir.evaluate import run_op
from memc.ir.module import Module
from memc.ir.types import DType
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import cubin
from memc.runtime.codegen.debug import stored
from memc.runtime.codegen.horizontal_fusion import parameters
from memc.runtime.codegen.kernel_table import KernelTable
from memc.runtime.codegen.row_plan import plan_rows
from memc.runtime.codegen.tvm_pipeline import pipeline_of

COMPILER = shutil.which("c++") or shutil.which("g++")
SHIM = Path(__file__).parent / "generated_on_host.h"
SIGNATURE = re.compile(r'^extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\((.*)\) \{', re.MULTILINE)
LANE = 'asm("mov.u32 %0, %%laneid;" : "=r"(lane));'
TARGET = CodeTarget.create("cuda")

needs_compilers = pytest.mark.skipif(
    COMPILER is None or shutil.which("nvcc") is None, reason="needs a C++ compiler and CUDA's headers"
)


class HostKernels:
    """The kernels of a table, by name."""

    def __init__(self, table: KernelTable, folder: Path) -> None:
        self.names = {name: parameter_names(func) for name, func in table.functions.items()}
        source = cuda_source(table)
        assert LANE in source
        parts = [f'#include <cuda_fp16.h>\n#include "{SHIM}"\n', for_host(source)]
        self.order: dict[str, list[str]] = {}
        for found in SIGNATURE.finditer(source):
            kernel, given = found[1], [p.strip() for p in found[2].split(",")]
            self.order[kernel.removesuffix("_kernel")] = [p.split()[-1] for p in given]
            types = [p.rsplit(" ", 1)[0].replace("__restrict__", "") for p in given]
            call = ", ".join(f"static_cast<{t}>(a[{n}])" for n, t in enumerate(types))
            parts.append(f'extern "C" void run_{kernel}(void** a, int blocks, int wide, int high) {{')
            parts.append(f"  host::Run(blocks, wide, high, [&] {{ {kernel}({call}); }});\n}}")
        path = folder / "kernels.cc"
        path.write_text("\n".join(parts))
        # nvcc hands C++ on to the host's compiler, with the folder of CUDA's headers.
        options = "-fno-strict-aliasing,-ffp-contract=off,-fPIC,-w"
        command = ["nvcc", "-x", "c++", "-std=c++17", "-O1", "-Xcompiler", options, "-shared", str(path)]
        made = subprocess.run([*command, "-o", str(path.with_suffix(".so"))], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[:3000]
        self.library = ctypes.CDLL(str(path.with_suffix(".so")))
        self.extents = {name: launch_of(func) for name, func in table.functions.items()}

    def run(self, name: str, arrays: Sequence[Any]) -> None:
        """Run a kernel on its operands and results, which it writes."""
        known = dict(zip(self.names[name], arrays))
        given = [known[self._parameter(name, text)] for text in self.order[name]]
        pointers = (ctypes.c_void_p * len(given))(*[a.ctypes.data for a in given])
        getattr(self.library, f"run_{name}_kernel")(pointers, *self.extents[name])

    def _parameter(self, kernel: str, text: str) -> str:
        return next(
            n for n in sorted(self.names[kernel], key=len, reverse=True) if re.fullmatch(rf"{n}(_ptr)?(_\d+)?", text)
        )


def for_host(source: str) -> str:
    """The source in C++: what g++ has in other places, or not at all."""
    return re.sub(r"__shared__ (alignas\(\d+\)) ", r"\1 __shared__ ", source.replace(LANE, "lane = host::Lane();"))


def parameter_names(func: tvm.tirx.PrimFunc) -> list[str]:
    return [str(p.name) for p in func.params]


def cuda_source(table: KernelTable) -> str:
    """All kernels, as nvcc is given them."""
    build = importlib.import_module("memc.runtime.codegen.build")
    with cubin.source_stays():
        module = tvm.ir.IRModule(dict(table.functions))
        built = tvm.tirx.build(module, target=build.tvm_target(TARGET), pipeline=pipeline_of("cuda"))
    (source,) = [m.inspect_source("cuda") for m in built.imports if m.kind == "cuda"]
    return str(source)


def launch_of(func: tvm.tirx.PrimFunc) -> tuple[int, int, int]:
    """Blocks, and threads of a block along x and y."""
    found = {"blockIdx.x": 1, "threadIdx.x": 1, "threadIdx.y": 1}

    def loop(node: Any) -> None:
        if node.thread_binding is not None:
            found[str(node.thread_binding.thread_tag)] = int(node.extent)

    def attribute(node: Any) -> None:
        if str(node.attr_key) == "thread_extent":
            found[str(node.node.thread_tag)] = int(node.value)

    tvm_ffi.structural_walk(func.body, [(tvm.tirx.For, loop), (tvm.tirx.AttrStmt, attribute)])
    return found["blockIdx.x"], found["threadIdx.x"], found["threadIdx.y"]


def check_module(module: Module, inputs: dict[str, Any], folder: Path, rtol: float = 1e-4) -> int:
    """Every generated kernel of a planned module against the numpy references of its ops, each on what the references before
    it gave; returns how many there are."""
    function = module.main
    known = {p: inputs[p.name] if p.role is Role.INPUT else module.weights[p.name] for p in function.params}
    for op in function.ops:
        results = (
            [np.asarray(op.attrs["value"])] if op.name == "constant" else run_op(op, [known[v] for v in op.operands])
        )
        known.update(zip(op.results, results))
    table = KernelTable(TARGET)
    calls = [call for ops in runs_of(function) for call in calls_of(table, ops, function)]
    if not calls:
        return 0
    kernels = HostKernels(table, folder)
    halves = (DType.F16, DType.BF16)
    for name, given, made in calls:
        accuracy = 2e-2 if any(v.type.dtype in halves for v in (*given, *made)) else rtol
        arrays = {v: np.array(known[v], order="C") for v in given}
        arrays.update({v: np.zeros(v.type.shape, v.type.dtype.numpy) for v in made})
        kernels.run(name, [stored(arrays[v]) for v in (*given, *made)])
        for value in made:
            assert_near(arrays[value], known[value], f"{name} -> %{value.name}", accuracy)
    return len(calls)


def runs_of(function: Function) -> list[list[Op]]:
    """Ops by kernel."""
    runs: dict[Any, list[Op]] = {}
    for number, op in enumerate(function.ops):
        has_code = op.name != "constant" and any(r.type.elements for r in op.results)
        if has_code and op.plan.library_kernel is None:
            runs.setdefault(-1 - number if op.plan.joint is None else op.plan.joint, []).append(op)
    return list(runs.values())


def calls_of(table: KernelTable, ops: Sequence[Op], function: Function) -> list[tuple[str, list[Value], list[Value]]]:
    """The kernels of ops: each with what it reads and what it writes."""
    if ops[0].plan.lane is not None:  # They are given whole storages.
        return []
    if ops[0].plan.rows is not None:
        readers, returned = function.uses(), set(function.returns)
        plan = plan_rows(ops, lambda v: v in returned or any(o not in ops for o in readers.get(v, ())), "cuda")
        return [(table.rows(ops, plan), list(plan.given), list(plan.stored))]
    if ops[0].plan.joint is not None:
        made = [op.result for op in ops]
        return [(table.joint(ops), [v for v in parameters(ops) if v not in made], made)]
    (op,) = ops
    return [(k.name, [op.operands[n] for n in k.operands], [op.results[k.result]]) for k in table.kernels(op, None)]


def assert_near(found: Any, expected: Any, what: str, rtol: float) -> None:
    if np.asarray(expected).dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected, what)
        return
    wide, near = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    size = np.abs(near[np.isfinite(near)]).max(initial=0)
    np.testing.assert_allclose(wide, near, rtol=rtol, atol=rtol * max(float(size), 1e-3), err_msg=what)
