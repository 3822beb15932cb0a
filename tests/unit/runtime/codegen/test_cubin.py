# SPDX-License-Identifier: Apache-2.0
"""Cross-compiling to a cubin on a machine without a GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.types import DType
from memc.runtime import codegen
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.cubin import compile_source, last_line, with_prelude

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_artifact_holds_a_cubin_for_the_architecture(
    network: Module, plan: Callable, arch: str, write: Callable
) -> None:
    planned = plan(network, target="cuda")
    planned.target = Target.of("cuda", arch)
    compiled = codegen.build(planned)
    assert b"__global__" not in compiled.library and b"cubin" in compiled.library
    assert compiled.library.count(b"\x7fELF") >= 2
    assert arch.encode() in compiled.library
    assert compiled.symbols == ()


@needs_nvcc
def test_offsets_are_multiples_of_256(network: Module, plan: Callable, write: Callable) -> None:
    path: Path = write(plan(network, target="cuda"), target="cuda")
    data = json.loads((path / "plan.json").read_text())
    assert data["target"]["kind"] == "cuda" and {space["alignment"] for space in data["spaces"]} == {256}
    assert data["weights"] and all(entry["offset"] % 256 == 0 for entry in [*data["weights"], *data["values"]])


@needs_nvcc
def test_gemm_and_grouped_convolution_compile(make_module: Callable, plan: Callable) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        gemm = b.op("matmul", [inputs[0], inputs[1]], transpose_a=False, transpose_b=False)
        grouped = b.op("conv", [inputs[3], inputs[4]], strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=2)
        return [b.op("add", [gemm, inputs[2]]), grouped]

    shapes = {
        "a": (DType.F32, (1, 8)),
        "b": (DType.F32, (8, 16)),
        "c": (DType.F32, (16,)),
        "x": (DType.F32, (1, 128, 56, 56)),
        "w": (DType.F32, (256, 64, 3, 3)),
    }
    assert codegen.build(plan(make_module(shapes, body), target="cuda")).kernels >= 2


def test_no_compiler_is_one_line(network: Module, plan: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UnsupportedError, match="nvcc was not found"):
        codegen.build(plan(network, target="cuda"))


def test_targets_are_checked() -> None:
    for arguments in [("metal",), ("cuda", "sm_x"), ("llvm", "sm_90"), ("llvm", None, "two words")]:
        with pytest.raises(UsageError):
            CodeTarget.create(*arguments)
    assert CodeTarget.create("cuda", arch="sm_80").alignment == 256
    assert CodeTarget.create("llvm", mcpu="x86-64-v2").cpu == "x86-64-v2"


@needs_nvcc
def test_arithmetic_is_that_of_ieee_754() -> None:
    """Quotients and roots are rounded as their exact intrinsics are, and functions are not the approximate ones."""
    kernel = 'extern "C" __global__ void k(float* x) { x[0] = %s; }'

    def cubin(expression: str) -> bytes:
        return compile_source(kernel % expression, "sm_90")

    assert cubin("x[0] / x[1]") == cubin("__fdiv_rn(x[0], x[1])") != cubin("__fdividef(x[0], x[1])")
    assert cubin("sqrtf(x[0])") == cubin("__fsqrt_rn(x[0])")
    assert cubin("expf(x[0])") != cubin("__expf(x[0])")
    assert cubin("tanhf(x[0])") != cubin("__tanhf(x[0])")


def test_what_nvcc_says_is_passed_on() -> None:
    text = "Compilation error:\nnvcc fatal   : Unsupported gpu architecture 'sm_12'\n"
    assert last_line(text) == "nvcc fatal   : Unsupported gpu architecture 'sm_12'"
    assert (
        last_line("Compilation error:\na.cu(3): error: no such name\n1 error detected")
        == "a.cu(3): error: no such name"
    )
    assert last_line("killed") == "killed" and last_line("") == ""


@pytest.mark.parametrize(
    ("name", "apart"), [("joint_relu_3", False), ("rows_div", False), ("lanes_1", False), ("relu_2", True)]
)
def test_only_kernels_of_one_op_are_told_that_tensors_lie_apart(name: str, apart: bool) -> None:
    """Later ops of a kernel overwrite what earlier ones read."""
    head = 'extern "C" __global__ void __launch_bounds__(256) '
    source = f"{head}{name}_kernel(float* __restrict__ a, float* __restrict__ b) {{\n"
    assert with_prelude(source, None).count("__restrict__ a") == apart
    assert with_prelude(source, None).count("__restrict__ b") == apart
