# SPDX-License-Identifier: Apache-2.0
"""What tests on a GPU need."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from memc import native


@pytest.fixture(scope="session")
def arch() -> str:
    """The first GPU's, such as sm_90. Skips where there is none, or no nvcc."""
    if shutil.which("nvidia-smi") is None or shutil.which("nvcc") is None:
        pytest.skip("needs an NVIDIA GPU and nvcc")
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True)
    lines = done.stdout.split()
    if done.returncode != 0 or not lines:
        pytest.skip("needs an NVIDIA GPU")
    return f"sm_{lines[0].replace('.', '')}"


@pytest.fixture(scope="session")
def kernels(arch: str) -> None:
    """memc's own kernels, to be called through the library."""
    import tvm
    import tvm_ffi

    from memc.runtime.codegen.cuda_kernels import own_kernels

    ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"), ctypes.RTLD_GLOBAL)
    native.load()
    tvm.cuda(0).sync()
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, own_kernels(arch))
