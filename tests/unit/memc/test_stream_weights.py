# SPDX-License-Identifier: Apache-2.0
"""Models larger than their budget, whose weights are streamed: the bits of the resident ones, what is reported, and what loading takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.runtime.artifact.read import read_manifest
from memc.runtime.execute import memory

WIDTH, LAYERS = 256, 10
"""Weights of 256 KiB."""


def network(batch: int, tied: bool = False) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"

    def product(weight: str) -> None:
        nonlocal last
        out = f"v{len(nodes)}"
        nodes.append(helper.make_node("MatMul", [last, weight], [out]))
        nodes.append(helper.make_node("Tanh", [out], [f"{out}t"]))
        last = f"{out}t"

    for i in range(LAYERS):
        weights.append(numpy_helper.from_array(random.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32), f"w{i}"))
        product(f"w{i}")
    if tied:
        product("w0")
    shape = [batch, WIDTH]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def ran(executable: Any, batch: int) -> bytes:
    x = np.random.default_rng(1).normal(size=(batch, WIDTH)).astype(np.float32)
    (out,) = executable(x=x).values()
    return np.asarray(out).tobytes()


def within(plain: memc.Compilation, share: float) -> int:
    """The budget that leaves so large a share of the weights."""
    return plain.report.peak_bytes - int(plain.report.weights_bytes * (1 - share))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_bits_of_the_resident_model(batch: int, precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(batch, tied=batch == 3)
    plain = memc.compile(model, precision=precision)
    expected = ran(plain.load(), batch)
    hosts = []
    for share in (0.75, 0.5, 0.25):
        budget = within(plain, share)
        found = memc.compile(model, precision=precision, memory_budget=budget, offload="auto")
        report = found.report
        assert report.peak_bytes <= budget and report.host_bytes >= plain.report.peak_bytes - budget
        assert report.host_bytes + report.weights_bytes == plain.report.weights_bytes
        hosts.append(report.host_bytes)
        for times in ("thread", "at-start", "at-done", "random:7"):
            monkeypatch.setenv("MEMC_COPIES", times)
            executable = found.load()
            assert [ran(executable, batch) for _ in range(2)] == [expected] * 2, times
    assert hosts == sorted(hosts)


def test_weights_in_panels_are_streamed_as_they_are_read() -> None:
    """A product of many rows takes a library's kernel, for which weights are laid out when the artifact is written."""
    model = network(512)
    plain = memc.compile(model)
    found = memc.compile(model, memory_budget=within(plain, 0.25), offload="auto")
    kernels = {op.plan.library_kernel for op in found.module.main.ops} - {None}
    assert any("packed" in str(kernel) for kernel in kernels)
    assert found.report.host_bytes >= plain.report.weights_bytes // 2
    assert ran(found.load(), 512) == ran(plain.load(), 512)


def test_what_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network(16, tied=True), str(path))
    plain = memc.compile(str(path), plan_only=True).report
    budget = plain.peak_bytes - plain.weights_bytes // 2
    command = [sys.executable, "-m", "memc", "compile", str(path), "--memory-budget", str(budget), "--offload", "auto"]
    command += ["--plan-only", "--json", str(tmp_path / "r.json")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    data = json.loads((tmp_path / "r.json").read_text())
    streamed = data["offload"]["streamed"]
    count = len(streamed["weights"])
    assert f"{count} of {LAYERS} weights lie on the host, " in said
    assert "weights on the host" in said and "with all weights resident" in said and "recomputation alone" not in said
    assert streamed["resident"] == LAYERS - count and 5 <= count < LAYERS
    assert streamed["bytes"] == data["host_bytes"] == sum(each["bytes"] for each in streamed["weights"])
    assert streamed["windows"] == data["offload"]["copies"] == sum(each["windows"] for each in streamed["weights"])
    assert streamed["copied_bytes"] == data["offload"]["prefetched_bytes"] == data["offload"]["lanes"]["in"]["bytes"]
    assert 0 < streamed["windows_bytes"] <= data["arena_bytes"]
    added = data["offload"]["makespan_seconds"] / streamed["resident_seconds"] - 1
    assert round(100 * added, 3) == round(data["added_percent"], 3)
    assert data["offloaded_bytes"] == 0 and data["link"] == "memory" and data["policy"] == "auto"
    assert data["recomputation"]["peak_bytes_without"] == plain.peak_bytes
    decisions = {each["value"]: each["decision"] for each in data["offload"]["values"]}
    assert {name for name, what in decisions.items() if what == "streamed"} == {
        w["weight"] for w in streamed["weights"]
    }
    assert data["order_gain_percent"] is None


def test_on_cuda_weights_lie_in_pinned_memory(tmp_path: Path) -> None:
    """Where ops are held by each copy, the report's timeline counts with copies that start and are waited for together, too."""
    options: dict[str, Any] = {"target": "cuda", "arch": "sm_90"}
    model = network(1024, tied=True)
    plain = memc.compile(model, plan_only=True, **options)
    found = memc.compile(
        model, tmp_path / "net.memc", memory_budget=within(plain, 0.5), offload="auto", link="h200", **options
    )
    manifest = read_manifest(tmp_path / "net.memc")
    on_host = {weight.spec.name for weight in manifest.weights if weight.spec.space == "host"}
    moved = found.report.offload
    assert moved is not None and moved.streamed is not None and manifest.space("host").is_pinned
    assert on_host == {each.weight for each in moved.streamed.weights} and len(on_host) >= LAYERS // 2
    assert manifest.space("host").bytes == found.report.host_bytes == len(on_host) * WIDTH * WIDTH * 4
    added = 100 * (moved.makespan_seconds / moved.streamed.resident_seconds - 1)
    assert found.report.added_percent is not None and added == pytest.approx(found.report.added_percent, abs=0.01)


def test_a_budget_that_nothing_keeps(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network(16), str(path))
    command = [sys.executable, "-m", "memc", "compile", str(path), "--memory-budget", "64KiB", "--offload", "auto"]
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode == 4 and failed.stderr.count("\n") == 1
    assert "cannot be met: the least reachable peak is" in failed.stderr and "weights 0" in failed.stderr


def test_training_steps_move_no_weights() -> None:
    model = network(16)
    plain = memc.compile(model, train=memc.BuildGradient(), plan_only=True).report
    budget = plain.peak_bytes - plain.arena_bytes // 4
    found = memc.compile(model, train=memc.BuildGradient(), plan_only=True, memory_budget=budget, offload="auto").report
    assert found.peak_bytes <= budget and found.weights_bytes == plain.weights_bytes
    assert found.offload is None or found.offload.streamed is None


def test_loading_makes_no_second_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is mapped and read straight into the spaces: beside them nothing large is allocated."""
    import tracemalloc

    model = network(16)
    plain = memc.compile(model)
    found = memc.compile(model, tmp_path / "net.memc", memory_budget=within(plain, 0.5), offload="auto")
    filled: list[tuple[str, int]] = []
    real = memory.upload

    def upload(manifest: Any, space: Any, slab: Any) -> None:
        tracemalloc.start()
        try:
            real(manifest, space, slab)
            filled.append((space.name, tracemalloc.get_traced_memory()[1]))
        finally:
            tracemalloc.stop()

    monkeypatch.setattr(memory, "upload", upload)
    executable = memc.load(found.path)
    assert [name for name, _ in filled] == ["weights", "host"]
    assert all(peak < WIDTH * WIDTH * 4 // 2 for _, peak in filled)
    assert executable.statistics()["host"] == found.report.host_bytes
