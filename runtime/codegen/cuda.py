# SPDX-License-Identifier: Apache-2.0
"""CUDA code without a GPU: kernels to one cubin inside the artifact.

On a machine without a GPU, TVM would store CUDA source and compile it when loaded, which its runtime alone cannot do.
So the source is compiled here, and a module that saves itself as the cubin takes the source module's place.
"""

from __future__ import annotations

import shutil
from typing import Any

import tvm
import tvm_ffi
from tvm.support import nvcc

from memc.ir.errors import UnsupportedError
from memc.runtime.codegen.math_functions import CUDA_PRELUDE


def cuda_target(arch: str, host: tvm.target.Target) -> tvm.target.Target:
    """TVM's target for a compute capability, with limits that hold for all since sm_70."""
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
    return tvm.target.Target({"kind": "cuda", "arch": arch, "host": host, **limits})


def replace_sources(library: Any, arch: str, target: tvm.target.Target) -> None:
    """Put a cubin in the place of each CUDA source module that `library` imports.

    Raises UnsupportedError if nvcc is not installed or does not know the architecture.
    """
    from memc import native

    imports = list(library.imports)
    library.clear_imports()
    for imported in imports:
        if imported.kind == "cuda":
            cubin = compile_source(imported.inspect_source("cuda"), arch, target)
            imported = native.load()["memc_cubin_module"](imported, cubin)
        library.import_module(imported)


def with_prelude(source: str, _target: Any) -> str:
    """CUDA source as TVM generates it, with the functions that our expressions call. TVM calls this by its name."""
    return CUDA_PRELUDE + source


tvm_ffi.register_global_func("tvm_callback_cuda_postproc", with_prelude, override=True)


def compile_source(source: str, arch: str, target: tvm.target.Target) -> bytes:
    if shutil.which("nvcc") is None:
        raise UnsupportedError("target cuda: nvcc was not found; install the CUDA toolkit and put nvcc on PATH")
    try:
        with target:
            return bytes(nvcc.compile_cuda(source, target_format="cubin", arch=arch, compiler="nvcc"))
    except RuntimeError as error:
        raise UnsupportedError(f"target cuda, arch {arch}: nvcc failed: {last_line(str(error))}") from None


def last_line(text: str) -> str:
    """What nvcc says is wrong, without the headings around it."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if "fatal" in line.lower() or "error:" in line.lower() and line[-1] != ":"]
    return (telling or [line for line in lines if line] or [""])[0]
