# SPDX-License-Identifier: Apache-2.0
"""From a planned module to one shared library that TVM's runtime loads."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.target.codegen import llvm_get_cpu_features, llvm_is_valid_cpu

from memc.ir.errors import MemcError, UsageError
from memc.ir.module import Module
from memc.runtime.artifact.interface import interface_of
from memc.runtime.artifact.plan_text import interface_text
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import cubin
from memc.runtime.codegen.argument_checks import compiled_checks
from memc.runtime.codegen.compile_units import compiled_units, units_of
from memc.runtime.codegen.cuda_kernels import own_kernels, sources_of
from memc.runtime.codegen.fallbacks import Retreats, find_broken
from memc.runtime.codegen.kernel_table import KernelTable
from memc.runtime.codegen.program import Program, emit, emit_interface
from memc.runtime.host_cpu import CODE_FLAGS


@dataclass(frozen=True)
class CompiledModule:
    """Generated code and what running it needs."""

    library: bytes
    """A shared library for TVM's virtual machine."""
    kernels: int
    """Distinct generated kernels."""
    symbols: tuple[str, ...]
    """Functions of memc's kernel library that it calls; none: TVM's runtime is enough."""
    target: CodeTarget
    interface: Mapping[str, Any]
    """What the code needs of who runs it: `runtime/artifact/interface.py`."""
    calls: tuple[tuple[int, str], ...]
    """The kernel calls of a run, in order: index of the op among the main function's, and name."""
    cpu_flags: tuple[str, ...] = ()
    """What the CPU must have, by the names in /proc/cpuinfo."""
    image: bytes = b""
    """A cubin of memc's own CUDA kernels, which attention and sorts take, and calls of the CUDA libraries may."""


def build(module: Module, mcpu: str = "") -> CompiledModule:
    """Code for a planned module's main function, for the module's target and the (host) CPU `mcpu`, as in `CodeTarget`.

    Kernels that do not compile give way to plainer ones, with a warning. Raises CodegenError for ops of which no kernel
    compiles, UnsupportedError for ops that have no code, and for CUDA if there is no compiler for its sources.
    """
    target = CodeTarget(module.target, mcpu)
    program, table, parts = compiled_program(module, target)
    flags = flags_of(host_target(target))
    described = interface_of(
        module.main,
        target,
        storages=program.storages,
        symbols=program.symbols,
        cpu_flags=flags,
    )
    emit_interface(program.builder, interface_text(described))
    checks = compiled_checks({name: type for type, name in table.checks.items()}, tvm_target(target, quickly=True))
    return CompiledModule(
        link(program, [*parts, *checks], target),
        len(table.functions),
        program.symbols,
        target,
        described,
        program.calls,
        flags,
        own_kernels(target.arch, sources_of(module.main)) if target.kind == "cuda" else b"",
    )


def host_target(target: CodeTarget, options: Mapping[str, Any] | None = None) -> tvm.target.Target:
    """TVM's target for the CPU. Raises UsageError for a CPU that LLVM does not know: it would build for another."""
    if target.cpu != "generic" and not llvm_is_valid_cpu(target.cpu, f"{platform.machine()}-linux-gnu"):
        raise UsageError(f"mcpu: LLVM knows no CPU {target.cpu!r}; give native, or a name such as x86-64-v3")
    own = {"mcpu": target.cpu} if target.cpu != "generic" else {}
    return tvm.target.Target({"kind": "llvm", **own, **(options or {})})


def flags_of(host: tvm.target.Target) -> tuple[str, ...]:
    """Flags of the CPU that code for this target may use."""
    return tuple(sorted({CODE_FLAGS[str(f)] for f in llvm_get_cpu_features(host) if str(f) in CODE_FLAGS}))


def tvm_target(target: CodeTarget, quickly: bool = False) -> tvm.target.Target:
    """TVM's object for a target. `quickly`: with the CPU's code not optimized."""
    if target.kind == "cuda":
        # Host code only launches the kernels, mostly once, into a graph: to optimize it takes longer than nvcc does.
        return cubin.cuda_target(target.arch, host_target(target, {"opt-level": 0}))
    return host_target(target, {"opt-level": 0} if quickly else None)


def compiled_program(module: Module, target: CodeTarget) -> tuple[Program, KernelTable, list[Any]]:
    """The program of a planned module's main function, its kernels, and these compiled."""
    retreats = Retreats()
    while True:
        table = KernelTable(target, retreats)
        program = emit(module.main, target, table)
        retreats.check()
        try:
            parts = compile_kernels(table, target)
            retreats.warn()
            return program, table, parts
        except (MemoryError, OSError):
            raise
        except Exception as error:
            broken = broken_kernels(table, target, error)
        table.retreat(broken)
        retreats.check()


def broken_kernels(table: KernelTable, target: CodeTarget, error: Exception) -> Mapping[str, Exception]:
    """The kernels that do not compile by themselves, and why. Raises `error`, which all of them together cause, if there are
    none, and for CUDA if nothing compiles at all."""
    if target.kind == "cuda":
        cubin.compile_source("", target.arch)
    elif isinstance(error, MemcError):
        raise error
    broken = find_broken(list(table.functions), error, lambda names: compile_kernels(table, target, names))
    if not broken:
        raise error
    return broken


def compile_kernels(table: KernelTable, target: CodeTarget, names: Sequence[str] | None = None) -> list[Any]:
    """Runtime modules with kernels: all of the table, or those of some names."""
    functions = {name: table.functions[name] for name in (table.functions if names is None else names)}
    units = [unit for part in _by_aliasing(functions, target) for unit in units_of(part, table.told, target)]
    return compiled_units(units, target, tvm_target(target))


def _by_aliasing(
    functions: Mapping[str, tvm.tirx.PrimFunc], target: CodeTarget
) -> list[Mapping[str, tvm.tirx.PrimFunc]]:
    """The kernels whose arguments never share bytes, and those whose result may lie over an operand.

    In one LLVM module, TVM takes what the last function says of that for what all of them say: LLVM would be told that an
    operand is not what the result overwrites, and read it again afterwards.
    """
    if target.kind != "llvm":
        return [functions]
    parts: tuple[dict[str, tvm.tirx.PrimFunc], ...] = ({}, {})
    for name, function in functions.items():
        parts["tirx.noalias" not in function.attrs][name] = function
    return list(parts)


def link(program: Program, parts: Sequence[Any], target: CodeTarget) -> bytes:
    """The program and the modules with its kernels as the bytes of a shared library."""
    main, *others = [*parts] or [None]
    linked = relax._ffi_api.VMLink(program.builder, tvm_target(target), main, others, {})
    with tempfile.TemporaryDirectory(prefix="memc-") as folder:
        path = Path(folder) / "model.so"
        relax.VMExecutable(linked).export_library(str(path), fpack_imports=partial(pack_imports, host_target(target)))
        return path.read_bytes()


def pack_imports(host: tvm.target.Target, module: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
    """The object file with what `module` imports, which its own library alone hands out.

    TVM takes the host's part of CUDA code for a system library, whose parts register themselves in a table of the process:
    a second artifact's would replace the first one's there, with a warning.
    """
    path = Path(folder) / "imports.o"
    pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToLLVM")
    pack(module, False, str(host), "").write_to_file(str(path))
    return str(path)
