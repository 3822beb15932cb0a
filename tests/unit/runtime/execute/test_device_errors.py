# SPDX-License-Identifier: Apache-2.0
"""Failures of the device as typed errors: real ones where this machine can have them, else what drivers say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from memc.cli import main
from memc.ir.errors import (
    DeviceError,
    DeviceMemoryError,
    InvalidError,
    LaunchError,
    NoDeviceError,
    UnsupportedError,
)
from memc.ir.module import Module
from memc.runtime.artifact.plan_text import sealed
from memc.runtime.artifact.read import read_manifest
from memc.runtime.execute.device_errors import device_errors
from memc.runtime.execute.load import load

Write = Callable[..., Path]
X = np.ones((4, 8), np.float32)

HUGE = """\
func @main(%x: f32[1] {role = input}) -> (f32[1] {name = "y"}) {
  %a = broadcast(%x) {shape = [35000000000000]} : f32[35000000000000]
  %b = exp(%a) : f32[35000000000000]
  %c = reduce_sum(%b) {axes = [0], keepdims = true} : f32[1]
  return %c
}
"""
"""127 TiB for %a and as many for %b, together more than addresses there are."""


def test_an_arena_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, artifact = tmp_path / "huge.memir", tmp_path / "huge.memc"
    source.write_text(HUGE)
    assert main(["compile", str(source), "-o", str(artifact), "-q", "-O0"]) == 0
    with pytest.raises(DeviceMemoryError, match=r"huge\.memc: loading: out of memory .*it needs arena 254\.66 TiB"):
        load(artifact)
    capsys.readouterr()
    assert main(["run", str(artifact), "--input", "x=1"]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "compile for a smaller batch or with --memory-budget" in said


@pytest.mark.parametrize(
    ("text", "kind", "code", "advice"),
    [
        ("CUDA Runtime Error: cudaErrorMemoryAllocation (2): out of memory", DeviceMemoryError, 4, "--memory-budget"),
        ("memc.cuda.conv: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", DeviceMemoryError, 4, "free memory that others hold"),
        ("cudnnCreate: CUDNN_STATUS_ALLOC_FAILED", DeviceMemoryError, 4, "smaller batch"),
        ("cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED", DeviceMemoryError, 4, "smaller batch"),
        (
            "CUDA Runtime Error: cudaErrorNoDevice (100): no CUDA-capable device",
            NoDeviceError,
            3,
            "CUDA_VISIBLE_DEVICES",
        ),
        ("cuStreamCreate: CUDA_ERROR_NO_DEVICE", NoDeviceError, 3, "nvidia-smi"),
        ("CUDA Runtime Error: cudaErrorInsufficientDriver (35): version", NoDeviceError, 3, "nvidia-smi"),
        ("CUDALaunch Error: CUDA_ERROR_INVALID_VALUE\n grid=(0,1,1)", LaunchError, 70, "--kernels generated"),
        ("CUDA: an illegal memory access was encountered", LaunchError, 70, "report"),
        ("cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS", LaunchError, 70, "new process"),
        ("cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED", LaunchError, 70, "memc bench --profile"),
        ("CUDA Runtime Error: cudaErrorMisalignedAddress (716): misaligned address", LaunchError, 70, "report"),
        ("cudnnConvolutionForward: CUDNN_STATUS_EXECUTION_FAILED", LaunchError, 70, "report"),
        ("CUDA Runtime Error: cudaErrorUnknown (999): unknown error", DeviceError, 3, "new process"),
    ],
)
def test_what_drivers_say(
    network: Module, plan: Callable, write: Write, text: str, kind: type[DeviceError], code: int, advice: str
) -> None:
    """In a run, whose kernels fail."""
    executable = load(write(plan(network)))

    def fail(_: Any) -> None:
        raise tvm.error.InternalError(text)

    executable._enqueue = fail
    with pytest.raises(kind) as caught:
        executable(X)
    said = str(caught.value)
    assert type(caught.value) is kind and caught.value.exit_code == code
    assert said.startswith(f"{executable.manifest.path}: running: ") and advice in said and "\n" not in said
    assert " ".join(text.split()) in said and isinstance(caught.value.__cause__, tvm.error.InternalError)


def test_other_errors_stay_what_they_are(network: Module, plan: Callable, write: Write) -> None:
    manifest = read_manifest(write(plan(network)))
    for error in (RuntimeError("no such function"), ValueError("CUDA"), InvalidError("out of memory")):
        with pytest.raises(type(error)) as caught, device_errors(manifest, None, "running"):
            raise error
        assert caught.value is error
    with pytest.raises(DeviceMemoryError), device_errors(manifest, None, "running"):
        raise MemoryError


def test_an_executable_runs_on_after_a_failure(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    works, executable._enqueue = executable._enqueue, lambda _: (_ for _ in ()).throw(RuntimeError("CUDA: odd"))
    with pytest.raises(DeviceError):
        executable(X)
    executable._enqueue = works
    assert executable(X)["y0"].shape == (4, 32)


@pytest.mark.skipif(tvm.cuda(0).exist, reason="needs a machine without a GPU")
def test_no_gpu(network: Module, plan: Callable, write: Write, tmp_path: Path) -> None:
    path = write(plan(network))
    other = shutil.copytree(path, tmp_path / "cuda.memc")
    data = json.loads((other / "plan.json").read_text())
    data["target"] = {"kind": "cuda", "arch": "sm_90", "cpu": "", "cpu_flags": []}
    data["devices"] = ["cuda:0"]
    data["spaces"] = [{**space, "device": "cuda:0"} for space in data["spaces"]]
    (other / "plan.json").write_bytes(sealed(data))
    with pytest.raises(NoDeviceError) as caught:
        load(other)
    assert isinstance(caught.value, UnsupportedError) and caught.value.exit_code == 3
