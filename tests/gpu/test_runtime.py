# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: sessions, steady state, profiles and errors of the device. Skips itself elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.errors import DeviceMemoryError
from memc.passes.training.build_gradient import BuildGradient
from memc.runtime.execute.load import load

pytestmark = pytest.mark.gpu

TEXT = """\
func @main(%x: f32[8,64] {role = input}, %w: f32[64,32] {role = weight}) -> (f32[8,32] {name = "y"}) {
  %h = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[8,32]
  %r = relu(%h) : f32[8,32]
  %y = softmax(%r) {axis = 1} : f32[8,32]
  return %y
}
"""

HUGE = """\
func @main(%x: f32[1] {role = input}) -> (f32[1] {name = "y"}) {
  %a = broadcast(%x) {shape = [1099511627776]} : f32[1099511627776]
  %b = exp(%a) : f32[1099511627776]
  %c = reduce_sum(%b) {axes = [0], keepdims = true} : f32[1]
  return %c
}
"""
"""Four tebibytes for %a, and again for %b."""

X = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)


def artifact(arch: str, path: Path, **options: Any) -> Path:
    module = memc.parse(TEXT)
    module.weights["w"] = np.random.default_rng(1).normal(size=(64, 32)).astype(np.float32)
    memc.compile(module, path, target="cuda", arch=arch, **options)
    return path


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_profile(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    path = artifact(arch, tmp_path / "m.memc")
    found = memc.bench(path, runs=3, warmup=2, profiled_runs=3, cuda_graph=cuda_graph)
    assert found.profile is not None and found.profile.device == "cuda" and found.threads is None
    calls = found.profile.calls
    assert len(calls) == len(load(path).manifest.calls) and all(call.seconds > 0 for call in calls)
    for before, after in zip(calls, calls[1:]):
        assert before.begin + before.seconds <= after.begin + 1e-6
    assert sum(op.flops for op in found.profile.ops) >= 2 * 8 * 64 * 32


def test_training_profile(arch: str, tmp_path: Path) -> None:
    path = artifact(arch, tmp_path / "m.memc", train=BuildGradient(loss="mse"))
    found = memc.bench(path, runs=3, profiled_runs=2)
    assert found.training and found.profile is not None and found.profile.seconds > 0


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_sessions_in_threads(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc"), cuda_graph=cuda_graph)
    data = [X + n for n in range(3)]
    expected = [executable.run_numpy({"x": x})["y"] for x in data]
    sessions = [executable.session() for _ in data]

    def work(number: int) -> list[np.ndarray]:
        return [sessions[number].run_numpy({"x": data[number]})["y"] for _ in range(100)]

    with ThreadPoolExecutor(len(data)) as pool:
        for number, results in enumerate(pool.map(work, range(len(data)))):
            for result in results:
                np.testing.assert_array_equal(result, expected[number])


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_device_memory_is_flat(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc"), cuda_graph=cuda_graph)

    def work(runs: int) -> int:
        for _ in range(runs):
            executable.run_numpy({"x": X})
        executable.synchronize()
        return int(executable.device.available_global_memory)

    work(50)
    assert len({work(200) for _ in range(3)}) == 1


def test_an_arena_that_does_not_fit(arch: str, tmp_path: Path) -> None:
    path = tmp_path / "huge.memc"
    memc.compile(memc.parse(HUGE), path, target="cuda", arch=arch, opt_level=0, kernels="generated")
    with pytest.raises(DeviceMemoryError, match=r"out of memory of a device with .* it needs arena"):
        load(path)
    assert load(artifact(arch, tmp_path / "m.memc")).run_numpy({"x": X})["y"].shape == (8, 32)
