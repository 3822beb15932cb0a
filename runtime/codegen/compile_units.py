# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled in units, on all cores, each unit once for all programs that have it.

A compiler takes long to start, so several kernels make a unit. Where units end depends on the kernels themselves: a model with
one more op has the same units but for that one's.
"""

from __future__ import annotations

import contextvars
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from memc import native
from memc.ir.progress import Reached, tell
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import cubin, kernel_cache
from memc.runtime.codegen.argument_checks import unchecked
from memc.runtime.codegen.tvm_pipeline import pipeline_of

USUAL = {"llvm": 16, "cuda": 64}
"""Kernels in a unit, on average. nvcc takes as long to start as for some twenty kernels."""

LEAST, MOST = 0.5, 4
"""A unit but the last has at least, and any at most, so many times the usual kernels."""


@dataclass(frozen=True)
class Unit:
    """Kernels that are compiled together."""

    functions: Mapping[str, tvm.tirx.PrimFunc]
    key: str
    """Of their entry in the cache."""


@dataclass(frozen=True)
class Code:
    """What a unit compiles to."""

    host: bytes
    """An object file."""
    device: bytes = b""
    """For CUDA: what the module with the cubin saves."""
    source: bytes = b""
    """For CUDA: the source that the cubin was made of."""


def units_of(functions: Mapping[str, tvm.tirx.PrimFunc], told: Mapping[str, str], target: CodeTarget) -> Iterator[Unit]:
    """The kernels in units, in order. `told`: a checksum of each."""
    usual, names = USUAL[target.kind], list(functions)
    begin = 0
    for end, name in enumerate(names, 1):
        size = (end - begin) / usual
        if end < len(names) and (size < LEAST or size < MOST and int(told[name], 16) % usual):
            continue
        part = names[begin:end]
        key = kernel_cache.key_of(f"{target} {target.cpu}", [f"{each} {told[each]}" for each in part])
        yield Unit({each: functions[each] for each in part}, key)
        begin = end


def compiled_units(units: Sequence[Unit], target: CodeTarget, goal: tvm.target.Target) -> list[Any]:
    """One runtime module for each unit. `goal`: TVM's object for `target`. Raises what the first unit that does not compile
    raises."""
    kept = {unit.key: kernel_cache.load(unit.key) for unit in units}
    missing = [unit for unit in units if kept[unit.key] is None]
    made = dict(zip([unit.key for unit in missing], side_by_side(lambda unit: compiled(unit, target, goal), missing)))
    for key, code in made.items():
        kernel_cache.store(key, (code.host, code.device, code.source))
    if made:
        kernel_cache.shrink()
    return [module_of(unit, made.get(unit.key) or Code(*(kept[unit.key] or ()))) for unit in units]


def side_by_side(work: Callable[[Unit], Code], units: Sequence[Unit]) -> list[Code]:
    """What `work` makes of each unit, on as many threads as this process may use cores: TVM and LLVM do not need Python."""
    threads = min(len(units), len(os.sched_getaffinity(0)))
    kernels = sum(len(unit.functions) for unit in units)
    done = 0

    def told(code: Code, unit: Unit) -> Code:
        nonlocal done
        done += len(unit.functions)
        tell(Reached(f"{done} of {kernels} kernels", done / kernels))
        return code

    if threads < 2:
        return [told(work(unit), unit) for unit in units]
    with ThreadPoolExecutor(threads, "memc-codegen") as pool:
        pending = [pool.submit(contextvars.copy_context().run, work, unit) for unit in units]
        try:
            return [told(each.result(), unit) for each, unit in zip(pending, units)]
        finally:
            for each in pending:
                each.cancel()


def compiled(unit: Unit, target: CodeTarget, goal: tvm.target.Target) -> Code:
    """The code of a unit."""
    with cubin.source_stays(), unchecked():
        module = tvm.ir.IRModule(dict(unit.functions))
        built = tvm.tirx.build(module, target=goal, pipeline=pipeline_of(target.kind))
    with tempfile.TemporaryDirectory(prefix="memc-") as folder:
        path = Path(folder) / "unit.o"
        built.write_to_file(str(path))
        host = path.read_bytes()
    for imported in built.imports:
        if imported.kind == "cuda":  # One module has the kernels of all functions.
            source = imported.inspect_source("cuda")
            image = cubin.compile_source(source, target.arch)
            return Code(host, bytes(native.load()["memc_saved_with_cubin"](imported, image)), source.encode())
    return Code(host)


def module_of(unit: Unit, code: Code) -> Any:
    """The runtime module of a unit's code, to link."""
    with tempfile.TemporaryDirectory(prefix="memc-") as folder:
        path = Path(folder) / "unit.o"
        path.write_bytes(code.host)
        module = tvm.runtime.load_static_library(str(path), list(unit.functions))
    if code.device:
        module.import_module(native.load()["memc_cubin_module"](code.device, code.source.decode()))
    return module
