# SPDX-License-Identifier: Apache-2.0
"""Nothing that a call of the CUDA libraries has made is left over when a later one of its calls fails."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op

from memc.passes.kernels.select_kernels import library_kernel

# Each call gets extents of its own: a call site that is known makes nothing.
FRESH = itertools.count(3)


def launch(arrays: Sequence[Array], *steps: Step) -> None:
    op = make_op(arrays, steps)
    kernel = library_kernel(op, "cuda")
    assert kernel is not None
    result = np.zeros(op.result.type.shape, np.float32)
    tvm_ffi.get_global_func(kernel.symbol)(*map(tvm_ffi.from_dlpack, [*arrays, result]), *kernel.scalars(op))


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def convolution(kernel: int, height: int) -> None:
    attrs = {"strides": (1, 1), "pads": (kernel // 2,) * 4, "dilations": (1, 1), "group": 1}
    given = [ones(2, 3, height, 4), ones(5, 3, kernel, kernel), ones(5)]
    launch(given, ("conv", (0, 1, 2), attrs), ("relu", (3,), {}))


def gradient_of_weights(rows: int) -> None:
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "kernel": (1, 1)}
    launch([ones(4, 3, rows, 2), ones(4, 5, rows, 2)], ("conv_grad_weight", (0, 1), attrs))


def products(rows: int) -> None:
    plain = {"transpose_a": False, "transpose_b": False}
    launch([ones(3, rows, 5), ones(3, 5, 7), ones(7)], ("matmul", (0, 1), plain), ("add", (2, 3), {}))


CALLS = {
    "conv": lambda: convolution(3, next(FRESH)),
    "pointwise": lambda: convolution(1, next(FRESH)),
    "gradient": lambda: gradient_of_weights(next(FRESH)),
    "matmul": lambda: products(next(FRESH)),
}

FAILURES = [
    *(("conv", f"cudnnCreateTensorDescriptor:{n}") for n in (1, 2, 3)),
    *(("conv", f"cudnnSetTensorNdDescriptor:{n}") for n in (1, 2, 3)),
    *(("conv", f"cudnn{verb}:1") for verb in ("CreateFilterDescriptor", "SetFilterNdDescriptor")),
    *(("conv", f"cudnn{verb}:1") for verb in ("CreateConvolutionDescriptor", "SetConvolutionNdDescriptor")),
    *(("conv", f"cudnn{verb}:1") for verb in ("SetConvolutionGroupCount", "SetConvolutionMathType")),
    *(("conv", f"cudnn{verb}:1") for verb in ("CreateActivationDescriptor", "SetActivationDescriptor")),
    *(("pointwise", f"cublasLt{verb}:1") for verb in ("MatmulDescCreate", "MatmulPreferenceSetAttribute")),
    *(("pointwise", f"cublasLtMatrixLayoutCreate:{n}") for n in (1, 2, 3)),
    *(("gradient", f"cublasLtMatmulDescCreate:{n}") for n in (1, 2)),
    *(("gradient", f"cublasLtMatrixLayoutCreate:{n}") for n in (1, 4, 6)),
    *(("gradient", f"cublasLtMatmulPreferenceCreate:{n}") for n in (1, 2)),
    *(("matmul", f"cublasLtMatmulDescSetAttribute:{n}") for n in (1, 2, 3, 4)),
    *(("matmul", f"cublasLtMatrixLayoutCreate:{n}") for n in (1, 2, 3)),
    *(("matmul", f"cublasLtMatrixLayoutSetAttribute:{n}") for n in (1, 2, 5)),
    *(("matmul", f"cublasLtMatmulPreference{verb}:1") for verb in ("Create", "SetAttribute")),
    ("matmul", "cublasLtMatmulAlgoGetHeuristic:1"),
]


@pytest.mark.parametrize(("name", "failure"), FAILURES)
def test_descriptors_do_not_leak(
    kernels: None, fake: Path, monkeypatch: pytest.MonkeyPatch, name: str, failure: str
) -> None:
    library: Any = ctypes.CDLL(str(fake))
    CALLS[name]()  # Makes what lives as long as the process.
    before = library.fake_objects()
    library.fake_count_anew()
    monkeypatch.setenv("FAKE_CUDA_FAILS", failure)
    with pytest.raises(RuntimeError, match=failure.split(":")[0]):
        CALLS[name]()
    assert library.fake_objects() == before
    monkeypatch.delenv("FAKE_CUDA_FAILS")
    CALLS[name]()
    assert library.fake_objects() > before  # The counter does see what a call site keeps.


LATE = """
import ctypes, os
import numpy as np, tvm_ffi
from memc import native
native.load()
fake = ctypes.CDLL(os.environ["MEMC_CUDA_DRIVER"])
a = tvm_ffi.from_dlpack(np.ones((4, 4), np.float32))
scale = tvm_ffi.from_dlpack(np.ones((), np.float32))
matmul = tvm_ffi.get_global_func("memc.cuda.matmul")
def call():
    CALL
try:
    call()
except RuntimeError as error:
    print(str(error).splitlines()[0], fake.fake_objects())
os.environ.pop("FAKE_CUDA_FAILS")
call()
print("then", fake.fake_objects())
"""

PLAIN = "matmul(a, a, a, 2, -1, 0, 0, 0, -1, -1, 0)"
SCALED = "matmul(a, a, scale, a, 3, -1, 0, 0, 0, -1, 2, 0)"
GRAPH = f"tvm_ffi.get_global_func('memc.cuda.capture')(0, lambda: {PLAIN})"


@pytest.mark.parametrize(
    ("failure", "call", "failed", "then"),
    [
        # Of a site: a product and three layouts; then the two events that take times.
        ("cuEventCreate:2", PLAIN, 0, 6),
        ("cuMemcpyHtoDAsync_v2:1", SCALED, 0, 7),  # And device memory for 0 and 1.
        ("cuStreamEndCapture:1", GRAPH, 4, 4),
        ("cuGraphInstantiateWithFlags:1", GRAPH, 4, 4),
    ],
)
def test_events_and_graphs_do_not_leak(fake: Path, failure: str, call: str, failed: int, then: int) -> None:
    """`failed`, `then`: objects left over after the call that fails, and after the next."""
    paths = dict.fromkeys(("MEMC_CUDNN", "MEMC_CUBLASLT", "MEMC_CUDA_DRIVER"), str(fake))
    given = {**os.environ, **paths, "FAKE_CUDA_FAILS": failure}
    done = subprocess.run([sys.executable, "-c", LATE.replace("CALL", call)], capture_output=True, text=True, env=given)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    name = failure.split(":")[0].replace("WithFlags", "").replace("Async_v2", "")
    assert name in first and first.split()[-1] == str(failed)
    assert second == f"then {then}"
