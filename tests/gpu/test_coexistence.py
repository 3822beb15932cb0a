# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU and PyTorch: memc beside other users of the GPU. Skips itself elsewhere."""

from __future__ import annotations

import gc
import multiprocessing
import operator
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.errors import DeviceMemoryError, UsageError
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.load import load

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

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
WIDE = """\
func @main(%x: f32[1] {role = input}) -> (f32[1099511627776] {name = "y"}) {
  %y = broadcast(%x) {shape = [1099511627776]} : f32[1099511627776]
  return %y
}
"""
"""Four tebibytes of output."""

X = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
WEIGHTS = [np.random.default_rng(seed).normal(size=(64, 32)).astype(np.float32) for seed in (1, 2)]
WAYS = pytest.mark.parametrize("cuda_graph", [True, False])


def artifact(arch: str, path: Path, number: int = 0, text: str = TEXT, **options: Any) -> Path:
    module = memc.parse(text)
    if text == TEXT:
        module.weights["w"] = WEIGHTS[number]
    memc.compile(module, path, target="cuda", arch=arch, **options)
    return path


def expected(number: int = 0, x: np.ndarray = X) -> np.ndarray:
    r = np.maximum(x.astype(np.float64) @ WEIGHTS[number], 0)
    e = np.exp(r - r.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def holds(executable: Executable, number: int = 0) -> None:
    for _ in range(3):
        np.testing.assert_allclose(executable.run_numpy({"x": X})["y"], expected(number), rtol=1e-4, atol=1e-6)


def torch_works() -> None:
    a = torch.arange(1000, device="cuda", dtype=torch.float32)
    assert float((a + 1).sum()) == 500500.0
    torch.cuda.synchronize()


@pytest.mark.parametrize("text", [HUGE, WIDE])
def test_after_memory_ran_out(arch: str, tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    torch_works()
    path = artifact(arch, tmp_path / "m.memc", text=text, opt_level=0, kernels="generated")
    capfd.readouterr()
    for _ in range(2):
        with pytest.raises(DeviceMemoryError, match="out of memory of a device with"):
            load(path).run_numpy({"x": np.ones(1, np.float32)})
        torch_works()
    assert capfd.readouterr().err == ""
    holds(load(artifact(arch, tmp_path / "small.memc")))


def test_torch_holds_what_memc_would_need(arch: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc"))
    holds(executable)
    elements = torch.cuda.mem_get_info()[0] // 8  # Half of what is free, and more than is left.
    big = artifact(
        arch, tmp_path / "b.memc", text=HUGE.replace("1099511627776", str(elements)), kernels="generated", opt_level=0
    )
    held = torch.empty(elements * 6, dtype=torch.uint8, device="cuda")
    capfd.readouterr()
    with pytest.raises(DeviceMemoryError):
        load(big)
    torch_works()
    assert capfd.readouterr().err == ""
    del held
    torch.cuda.empty_cache()
    holds(executable)


def test_side_by_side(arch: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [artifact(arch, tmp_path / f"{n}.memc", n % 2) for n in range(4)]
    capfd.readouterr()
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(load, paths))
        list(pool.map(holds, loaded, [n % 2 for n in range(4)]))
    for number in (3, 0, 1, 2):
        holds(loaded[number], number % 2)
    del loaded[0]
    gc.collect()
    holds(loaded[0], 1)
    captured = capfd.readouterr()
    assert captured.err == "" and captured.out == ""


@WAYS
@pytest.mark.parametrize("kernels", ["auto", "generated"])
def test_a_run_in_the_callers_graph(arch: str, tmp_path: Path, cuda_graph: bool, kernels: str) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc", kernels=kernels), cuda_graph=cuda_graph)
    x = torch.from_numpy(X).cuda()
    for _ in range(3):
        executable(x)
    executable.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = x * 2
        y = torch.from_dlpack(executable(doubled)["y"])
        result = y + 1
    for step in range(3):
        x.copy_(torch.from_numpy(X + step))
        graph.replay()
        torch.cuda.synchronize()
        wide = expected(x=2 * (X + np.float32(step)))
        np.testing.assert_allclose(result.cpu().numpy() - 1, wide, rtol=1e-4, atol=1e-6)
    holds(executable)
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_allclose(y.cpu().numpy(), expected(x=2 * (X + np.float32(2))), rtol=1e-4, atol=1e-6)


@WAYS
def test_what_cannot_be_captured(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    """It is refused before anything is enqueued: the capture goes on, and so does everything after it."""
    path = artifact(arch, tmp_path / "m.memc")
    warm, cold = (load(path, cuda_graph=cuda_graph) for _ in range(2))
    step = load(artifact(arch, tmp_path / "t.memc", train=memc.BuildGradient(loss="mse")), cuda_graph=cuda_graph)
    labels = np.zeros((8, 32), np.float32)
    first = step(X, labels)
    before = step.state()["w"]
    x = torch.from_numpy(X).cuda()
    on_host = x.cpu()  # PyTorch itself copies nothing during a capture.
    warm(x)
    warm.synchronize()
    refused: list[Callable[[], Any]] = [
        lambda: cold(x),
        lambda: warm(X),
        lambda: warm(x.t().contiguous().t()),
        lambda: warm(on_host),
        lambda: warm.run_numpy({"x": X}),
        lambda: warm.placed_inputs({"x": X}),
        lambda: warm.synchronize(),
        lambda: warm.session(),
        lambda: load(path),
        lambda: step(X, labels),
        lambda: step.state(),
        lambda: step.load_state({"w": before}),
        lambda: step.session(),
    ]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        for call in refused:
            with pytest.raises(UsageError) as caught:
                call()
            assert "\n" not in str(caught.value)
        z = y * 2
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(z.cpu().numpy(), (X + 1) * 2)
    holds(warm)
    holds(cold)
    np.testing.assert_array_equal(step.state()["w"], before)
    assert np.isfinite(step(X, labels)) and np.isfinite(first)


@WAYS
def test_one_executable_on_two_streams(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    import tvm_ffi

    executable = load(artifact(arch, tmp_path / "m.memc"), cuda_graph=cuda_graph)
    streams = [torch.cuda.Stream() for _ in range(2)]

    def work(number: int) -> None:
        x = torch.from_numpy(X + np.float32(number)).cuda()
        torch.cuda.synchronize()
        wide = expected(x=X + np.float32(number))
        with tvm_ffi.use_raw_stream(executable.device, streams[number].cuda_stream):
            for _ in range(50):
                y = executable(x)["y"]
                streams[number].synchronize()
                np.testing.assert_allclose(torch.from_dlpack(y).cpu().numpy(), wide, rtol=1e-4, atol=1e-6)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


def test_the_current_device_stays(arch: str, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    path = artifact(arch, tmp_path / "m.memc")
    with torch.cuda.device(1):
        executable = load(path)
        holds(executable)
        assert torch.cuda.current_device() == 1 and torch.empty(1, device="cuda").device.index == 1


CHILD = """\
import os, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_coexistence import X, holds, load
from memc.ir.errors import UsageError
executable = load({path!r})
holds(executable)
child = os.fork()
if child == 0:
    for call in (lambda: executable(X), lambda: executable.run_numpy({{"x": X}}), lambda: load({path!r})):
        try:
            call()
            os._exit(1)
        except UsageError as error:
            assert "CUDA" in str(error) and chr(10) not in str(error)
    del executable
    sys.exit(0)
_, status = os.waitpid(child, 0)
holds(executable)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_is_refused(arch: str, tmp_path: Path) -> None:
    script = CHILD.format(here=str(Path(__file__).parent), path=str(artifact(arch, tmp_path / "m.memc")))
    # Python 3.12 warns of every fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_spawned_process(arch: str, tmp_path: Path) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc"))
    holds(executable)
    # A function that the child can import: it does not know this module.
    call = operator.methodcaller("run_numpy", {"x": X})
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for found in pool.map_async(call, [executable] * 2).get(timeout=120):
            np.testing.assert_allclose(found["y"], expected(), rtol=1e-4, atol=1e-6)
