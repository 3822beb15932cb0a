# SPDX-License-Identifier: Apache-2.0
"""What the CUDA library kernels say where a library fails, is missing, or is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memc import native


def in_process(fake: str, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `body` where the libraries are not yet loaded; `a` is a tensor and `call(symbol, ...)` calls a kernel."""
    program = (
        "import numpy as np, tvm_ffi\nfrom memc import native\nnative.load()\n"
        "a = tvm_ffi.from_dlpack(np.ones((1, 1, 4, 4), np.float32))\ncall = lambda s, *x: tvm_ffi.get_global_func(s)(*x)\n"
    )
    paths = {"MEMC_CUDNN": fake, "MEMC_CUBLASLT": fake, "MEMC_CUDA_DRIVER": fake}
    given = {**os.environ, **paths, **environment}
    return subprocess.run([sys.executable, "-c", program + body], capture_output=True, text=True, env=given)


CONV = "call('memc.cuda.conv', a, a, tvm_ffi.from_dlpack(np.ones((1,1,1,1),np.float32)), 2,-1,-1,0,0,1,2,1,1,0,0,1,1)"
MATMUL = "call('memc.cuda.matmul', a, a, a, 2, -1, 0, 0, 0, -1, -1, 0)"


@pytest.mark.parametrize(
    ("name", "call", "message"),
    [
        ("cudnnCreate", CONV, "memc.cuda.conv: cudnnCreate: FAKE_CUDNN_ERROR (no reason)"),
        (
            "cudnnConvolutionForward",
            CONV,
            "memc.cuda.conv: the library has no algorithm for this call in its workspace",
        ),
        ("cublasLtMatmulAlgoGetHeuristic", MATMUL, "memc.cuda.matmul: cublasLtMatmulAlgoGetHeuristic: FAKE_CUBLAS"),
        ("cublasLtMatmul", MATMUL, "memc.cuda.matmul: the library has no algorithm"),
    ],
)
def test_errors_name_the_kernel_and_the_function(fake: Path, name: str, call: str, message: str) -> None:
    done = in_process(str(fake), call, FAKE_CUDA_FAILS=name)
    assert done.returncode != 0 and message in done.stderr


def test_a_missing_library_names_its_wheel() -> None:
    done = in_process("/nowhere/libnone.so", MATMUL)
    assert "cannot load /nowhere/libnone.so" in done.stderr
    assert "install the wheel nvidia-cublas, or compile with --kernels generated" in done.stderr


def test_a_library_without_a_function_says_so(fake: Path) -> None:
    done = in_process(str(native.library_path()), MATMUL)
    assert "it lacks cublasLtCreate" in done.stderr
