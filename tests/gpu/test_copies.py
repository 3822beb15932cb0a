# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: copies to the host and back beside the kernels. Skips itself elsewhere."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.errors import DeviceMemoryError
from memc.ir.module import Module
from memc.runtime.execute.load import load
from memc.runtime.execute.tensors import typed

pytestmark = pytest.mark.gpu

LAYERS, ROWS, WIDTH = 20, 512, 256

TIMES = ("thread", "at-start", "at-done", "random:1", "random:2")

WAYS = pytest.mark.parametrize("cuda_graph", [True, False])

TARGET = 'target {kind = "cuda", arch = "ARCH", alignment = 256}\n'

COPIES = """func @main(%x: f32[256,256] {role = input}, %w: f32[256,256] {role = weight}) -> (f32[256,256] {name = "y"}) {
  %a = relu(%x) : f32[256,256]
  %h0 = offload_start(%a) {lane = "d2h"} : f32[256,256]
  %b = matmul(%a, %w) {transpose_a = false, transpose_b = false} : f32[256,256]
  %h = offload_done(%h0, %a) : f32[256,256]
  %c = tanh(%b) : f32[256,256]
  %g0 = offload_start(%c) {lane = "d2h"} : f32[256,256]
  %d = matmul(%c, %w) {transpose_a = false, transpose_b = false} : f32[256,256]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[256,256]
  %g = offload_done(%g0, %c) : f32[256,256]
  %e = exp(%d) : f32[256,256]
  %q0 = prefetch_start(%g) {lane = "h2d"} : f32[256,256]
  %p = prefetch_done(%p0, %h) : f32[256,256]
  %f = add(%e, %p) : f32[256,256]
  %q = prefetch_done(%q0, %g) : f32[256,256]
  %y = matmul(%f, %q) {transpose_a = false, transpose_b = false} : f32[256,256]
  return %y
}
"""

STREAMED = """func @main(%x: f32[4,256] {role = input}, %w: f32[256,256] {role = weight}) -> (f32[4,256] {name = "y"}) {
  %p0 = prefetch_start(%w) {lane = "h2d"} : f32[256,256]
  %a = tanh(%x) : f32[4,256]
  %p = prefetch_done(%p0, %w) : f32[256,256]
  %y = matmul(%a, %p) {transpose_a = false, transpose_b = false} : f32[4,256]
  return %y
}
"""

BITS = """func @main(%x: KIND {role = input}) -> (KIND {name = "y"}) {
  %a = copy(%x) : KIND @arena[0]
  %h0 = offload_start(%a) {lane = "d2h"} : KIND @host[PLACE]
  %h = offload_done(%h0, %a) : KIND alias %h0[0] @host[PLACE]
  %p0 = prefetch_start(%h) {lane = "h2d"} : KIND @arena[0]
  %p = prefetch_done(%p0, %h) : KIND alias %p0[0] @arena[0]
  %y = copy(%p) : KIND
  return %y
}
"""
"""Its planned form, so that nothing is done about it."""

W = (np.random.default_rng(1).normal(size=(256, 256)) / 16).astype(np.float32)
X = np.random.default_rng(2).normal(size=(256, 256)).astype(np.float32)


def parsed(text: str, arch: str) -> Module:
    module = memc.parse(TARGET.replace("ARCH", arch) + text)
    if "%w" in text:
        module.weights["w"] = W
    return module


def without_copies(text: str) -> str:
    lines = [line for line in text.splitlines() if "_start(" not in line and "_done(" not in line]
    return "\n".join(lines).replace("%p)", "%a)").replace("%q)", "%c)") + "\n"


def artifact(arch: str, path: Path, text: str = COPIES, **options: Any) -> Path:
    memc.compile(parsed(text, arch), path, target="cuda", arch=arch, **{"kernels": "generated", **options})
    return path


def network() -> Module:
    """Products and tanh in turn."""
    weights = [f"w{n}" for n in range(LAYERS)]
    given = ", ".join(f"%{w}: f32[{WIDTH},{WIDTH}] {{role = weight}}" for w in weights)
    kind = f"f32[{ROWS},{WIDTH}]"
    lines, last = [f'func @main(%x: {kind} {{role = input}}, {given}) -> ({kind} {{name = "y"}}) {{'], "x"
    for n, w in enumerate(weights):
        lines.append(f"  %h{n} = matmul(%{last}, %{w}) {{transpose_a = false, transpose_b = false}} : {kind}")
        lines.append(f"  %t{n} = tanh(%h{n}) : {kind}")
        last = f"t{n}"
    module = memc.parse("\n".join([*lines, f"  return %{last}", "}", ""]))
    rng = np.random.default_rng(0)
    module.weights.update({w: (rng.normal(size=(WIDTH, WIDTH)) / 16).astype(np.float32) for w in weights})
    return module


@pytest.fixture(scope="module")
def steps(arch: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], tuple[Path, Any]]:
    """Training steps by kernels and share of the arena, and their reports; copies take no time, so that they are made."""
    folder = tmp_path_factory.mktemp("steps")
    rates = {"bandwidth": 1e13, "shared": 1e13, "latency": 0}
    (folder / "link.json").write_text(json.dumps({"link": {"out": rates, "in": rates}}))
    made: dict[tuple[str, int], tuple[Path, Any]] = {}

    def step(kernels: str, share: int) -> tuple[Path, Any]:
        if (kernels, share) not in made:
            options: dict[str, Any] = {}
            if share < 100:
                whole = step(kernels, 100)[1]
                budget = whole.peak_bytes - whole.arena_bytes * (100 - share) // 100
                options = {"memory_budget": budget, "offload": "auto", "link": str(folder / "link.json")}
                options["offload_states"] = "none"
            path = folder / f"{kernels}.{share}.memc"
            how = memc.BuildGradient(loss="mse", optimizer="adam")
            done = memc.compile(network(), path, target="cuda", arch=arch, kernels=kernels, train=how, **options)
            assert (done.report.offload is not None and done.report.offload.copies > 0) == (share < 100)
            made[kernels, share] = (path, done.report)
        return made[kernels, share]

    return step


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [tuple(rng.normal(size=(2, ROWS, WIDTH)).astype(np.float32)) for _ in range(count)]  # type: ignore[misc]


def taken(step: Any, count: int) -> tuple[list[str], dict[str, np.ndarray]]:
    """The losses of steps, exactly, and the state after them."""
    losses = [float(step(x, y)).hex() for x, y in batches(count)]
    return losses, step.state()


def same(found: tuple[list[str], dict[str, np.ndarray]], wanted: tuple[list[str], dict[str, np.ndarray]]) -> None:
    assert found[0] == wanted[0] and len(set(wanted[0])) > 1
    assert found[1].keys() == wanted[1].keys()
    for name, array in wanted[1].items():
        assert found[1][name].tobytes() == array.tobytes(), name


@WAYS
@pytest.mark.parametrize("share", [50, 27])
def test_a_training_step_has_the_bits_of_one_without_copies(
    steps: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, share: int, cuda_graph: bool
) -> None:
    wanted = taken(load(steps("generated", 100)[0], cuda_graph=cuda_graph), 20)
    path, report = steps("generated", share)
    for times in TIMES:
        monkeypatch.setenv("MEMC_COPIES", times)
        step = load(path, cuda_graph=cuda_graph)
        assert step.statistics()["host"] == report.host_bytes > 0
        same(taken(step, 20), wanted)


@WAYS
@pytest.mark.parametrize("share", [50, 27])
def test_library_kernels(
    steps: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, share: int, cuda_graph: bool
) -> None:
    path, _ = steps("auto", share)
    monkeypatch.setenv("MEMC_COPIES", "at-start")
    wanted = taken(load(path, cuda_graph=cuda_graph), 20)  # Algorithms are those that the first run chooses.
    for times in TIMES:
        monkeypatch.setenv("MEMC_COPIES", times)
        same(taken(load(path, cuda_graph=cuda_graph), 20), wanted)


def test_a_training_session_goes_on_alone(steps: Callable[..., Any]) -> None:
    path, _ = steps("generated", 27)
    first = load(path)
    x, y = batches(1)[0]
    for _ in range(3):
        first(x, y)
    second = first.session()
    wanted = [first(x, y) for _ in range(3)]
    del first
    gc.collect()
    assert [second(x, y) for _ in range(3)] == wanted


@WAYS
def test_inference(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda_graph: bool) -> None:
    wanted = load(artifact(arch, tmp_path / "p.memc", without_copies(COPIES))).run_numpy({"x": X})["y"]
    path = artifact(arch, tmp_path / "m.memc")
    for times in TIMES:
        monkeypatch.setenv("MEMC_COPIES", times)
        executable = load(path, cuda_graph=cuda_graph)
        for _ in range(4):
            assert executable.run_numpy({"x": X})["y"].tobytes() == wanted.tobytes()
    assert executable.statistics()["host"] == 2 * X.nbytes


@WAYS
def test_sessions_in_threads_and_one_is_closed(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    path = artifact(arch, tmp_path / "m.memc")
    executable = load(path, cuda_graph=cuda_graph)
    data = [X + n for n in range(4)]
    wanted = [executable.run_numpy({"x": x})["y"].tobytes() for x in data]
    sessions: list[Any] = [executable, executable.session(), load(path, cuda_graph=cuda_graph), executable.session()]
    del executable

    def work(number: int) -> int:
        count = 10 if number == 3 else 100
        for _ in range(count):
            assert sessions[number].run_numpy({"x": data[number]})["y"].tobytes() == wanted[number]
        if number == 3:  # Closed while the others run, and another made.
            again = sessions[3].session()
            sessions[3] = None
            gc.collect()
            assert again.run_numpy({"x": data[3]})["y"].tobytes() == wanted[3]
        return number

    with ThreadPoolExecutor(len(data)) as pool:
        assert list(pool.map(work, range(len(data)))) == [0, 1, 2, 3]


def test_addresses_that_change(arch: str, tmp_path: Path) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc"))
    data = [X * (n + 1) for n in range(12)]
    wanted = [executable.run_numpy({"x": x})["y"].tobytes() for x in data]
    given = [executable.placed_inputs({"x": x}) for x in data]
    assert len({g["x"].data_ptr() for g in given}) == 12
    for _ in range(3):
        kept = [executable(**g)["y"] for g in given]
        assert [executable.to_numpy(executable.output("y"), y).tobytes() for y in kept] == wanted


@pytest.mark.parametrize(
    "kind", ["u8[1]", "bool[3,5]", "f16[777]", "bf16[3]", "f32[12345]", "f64[1]", "i64[7,11]", "f32[4194305]"]
)
def test_bits(arch: str, tmp_path: Path, kind: str) -> None:
    executable = load(
        artifact(arch, tmp_path / "m.memc", BITS.replace("KIND", kind).replace("PLACE", "512"), pass_pipeline="")
    )
    spec = executable.inputs[0]
    raw = np.random.default_rng(0).integers(0, 256, spec.nbytes).astype(np.uint8)
    raw[-min(4, raw.size) :] = (0x01, 0x02, 0xA0, 0x7F)[: min(4, raw.size)]  # A NaN with a payload, in f32.
    if kind.startswith("bool"):
        raw &= 1
    x = typed(raw, spec.dtype, spec.shape)
    for _ in range(3):
        assert executable.run_numpy({"x": x})["y"].tobytes() == x.tobytes()
    assert executable.statistics()["host"] == 512 + -(-x.nbytes // 256) * 256


@WAYS
def test_streamed_weights(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc", STREAMED), cuda_graph=cuda_graph)
    x = X[:4]
    assert executable.statistics()["host"] == W.nbytes and executable.statistics()["weights"] == 0
    for each in (executable, executable.session()):
        for _ in range(3):
            found = each.run_numpy({"x": x})["y"]
            np.testing.assert_allclose(found, np.tanh(x.astype(np.float64)) @ W, rtol=1e-4, atol=1e-5)


@WAYS
def test_memory_is_flat(arch: str, tmp_path: Path, cuda_graph: bool) -> None:
    executable = load(artifact(arch, tmp_path / "m.memc"), cuda_graph=cuda_graph)

    def work(runs: int) -> tuple[int, int]:
        for _ in range(runs):
            executable.run_numpy({"x": X})
        executable.synchronize()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return int(executable.device.available_global_memory), pages

    work(100)
    found = [work(300) for _ in range(3)]
    assert len({free for free, _ in found}) == 1
    assert found[-1][1] - found[0][1] < 256


def test_slabs_are_given_back(arch: str, tmp_path: Path) -> None:
    path = artifact(
        arch, tmp_path / "m.memc", BITS.replace("KIND", "u8[256]").replace("PLACE", str(1 << 28)), pass_pipeline=""
    )
    x = np.arange(256, dtype=np.uint8)

    def resident() -> int:
        executable = load(path)
        assert executable.run_numpy({"x": x})["y"].tobytes() == x.tobytes()
        del executable
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    resident()
    found = [resident() for _ in range(5)]
    assert found[-1] - found[0] < 1 << 26


def test_host_memory_that_there_is_not(arch: str, tmp_path: Path) -> None:
    offset = 1 << 50
    path = artifact(
        arch, tmp_path / "m.memc", BITS.replace("KIND", "u8[256]").replace("PLACE", str(offset)), pass_pipeline=""
    )
    says = rf"loading: space host: cannot pin {offset + 256} bytes of the host's memory: \d+ bytes of it are free; free memory"
    for _ in range(2):
        with pytest.raises(DeviceMemoryError, match=says) as caught:
            load(path)
        assert "\n" not in str(caught.value) and caught.value.exit_code == 4
    assert load(artifact(arch, tmp_path / "s.memc")).run_numpy({"x": X})["y"].shape == X.shape


def test_a_run_in_the_callers_graph(arch: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    executable = load(artifact(arch, tmp_path / "m.memc"))
    x = torch.from_numpy(X).cuda()
    for _ in range(3):
        wanted = executable.to_numpy(executable.output("y"), executable(x)["y"])
    executable.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.from_dlpack(executable(x)["y"])
        z = torch.from_dlpack(executable(x)["y"])  # Twice in one graph.
    for _ in range(3):
        y.zero_()
        z.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert y.cpu().numpy().tobytes() == z.cpu().numpy().tobytes() == wanted.tobytes()
    assert executable.run_numpy({"x": X})["y"].tobytes() == wanted.tobytes()  # Not in the graph.
    graph.replay()
    torch.cuda.synchronize()
    assert y.cpu().numpy().tobytes() == wanted.tobytes()
