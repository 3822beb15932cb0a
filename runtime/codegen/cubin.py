# SPDX-License-Identifier: Apache-2.0
"""CUDA code without a GPU: kernels to one cubin inside the artifact.

On a machine without a GPU, TVM would store CUDA source and compile it when loaded, which its runtime alone cannot do;
where it finds a GPU, it would compile by way of a package that memc does not need. So the source is compiled here, and
a module that saves itself as the cubin takes the source module's place.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from memc.ir.errors import UnsupportedError
from memc.runtime.codegen.cuda_prelude import CUDA_PRELUDE
from memc.runtime.codegen.team_reductions import TEAM_PRELUDE


def cuda_target(arch: str, host: tvm.target.Target) -> tvm.target.Target:
    """TVM's target for a compute capability, with limits that hold for all since sm_70."""
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
    return tvm.target.Target({"kind": "cuda", "arch": arch, "host": host, **limits})


KERNEL_OF_MANY = re.compile(r'^extern "C" __global__ .*\b(rows|joint|lanes)_?\w*\(.*$', re.MULTILINE)


def with_prelude(source: str, _target: Any) -> str:
    """CUDA source as TVM generates it, with the functions that our expressions call. TVM calls this by its name.

    TVM promises nvcc that no two arguments of any kernel overlap. Of kernels that do many ops this is taken back: the later
    ops overwrite what the earlier ones read.
    """
    source = KERNEL_OF_MANY.sub(lambda found: found[0].replace(" __restrict__", ""), source)
    return CUDA_PRELUDE + TEAM_PRELUDE + source


tvm_ffi.register_global_func("tvm_callback_cuda_postproc", with_prelude, override=True)

COMPILE = "tvm_callback_cuda_compile"
"""The name by which TVM calls its compiler."""

_theirs = tvm_ffi.get_global_func(COMPILE)
_source_stays: ContextVar[bool] = ContextVar("source_stays", default=False)


def _compiled(source: str) -> bytes:
    return source.encode() if _source_stays.get() else _theirs(source)


tvm_ffi.register_global_func(COMPILE, _compiled, override=True)


@contextmanager
def source_stays() -> Iterator[None]:
    """Keep TVM from compiling CUDA source."""
    before = _source_stays.set(True)
    try:
        yield
    finally:
        _source_stays.reset(before)


def compile_source(source: str, arch: str, includes: Path | None = None) -> bytes:
    """A cubin. Functions, quotients and subnormal numbers are as exact as IEEE 754 and CUDA's own library have them: no
    fast math. `includes`: the folder of what the source includes.

    Raises UnsupportedError if nvcc is not installed, does not know the architecture or finds an error.
    """
    if shutil.which("nvcc") is None:
        raise UnsupportedError("target cuda: nvcc was not found; install the CUDA toolkit and put nvcc on PATH")
    with tempfile.TemporaryDirectory(prefix="memc-") as folder:
        path = Path(folder) / "kernels.cu"
        path.write_text(source)
        command = ["nvcc", "--cubin", "-O3", "-arch", arch, "-o", "kernels.cubin", path.name]
        command += [f"-I{includes}"] if includes is not None else []
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise UnsupportedError(f"target cuda, arch {arch}: nvcc failed: {last_line(done.stdout)}")
        return path.with_suffix(".cubin").read_bytes()


def last_line(text: str) -> str:
    """What nvcc says is wrong, without the headings around it."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if "fatal" in line.lower() or "error:" in line.lower() and line[-1] != ":"]
    return (telling or [line for line in lines if line] or [""])[0]
