# SPDX-License-Identifier: Apache-2.0
"""Training steps that keep a budget by copies to the host: what they report, and that losses and weights keep their bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc import driver
from memc.ir import machine
from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.errors import BudgetError, UsageError
from memc.ir.text.parser import parse

WIDTH, BATCH, LAYERS = 64, 512, 10
"""Activations of 128 KiB."""


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(LAYERS):
        weights.append(numpy_helper.from_array(random.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32), f"w{i}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"p{i}"]),
            helper.make_node("Tanh", [f"p{i}"], [f"a{i}"]),
        ]
        last = f"a{i}"
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, WIDTH])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [BATCH, WIDTH])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> str:
    """So quick that copies are always worth it."""
    path = tmp_path_factory.mktemp("link") / "quick.json"
    way = {"bandwidth": 1e13, "shared": 1e13, "latency": 1e-9}
    path.write_text(json.dumps({"link": {"out": way, "in": way}}))
    return str(path)


def steps(artifact: Any) -> list[float]:
    """Losses of five steps."""
    random = np.random.default_rng(1)
    data = {"x": random.normal(size=(BATCH, WIDTH)).astype(np.float32)}
    data["labels"] = random.integers(0, WIDTH, BATCH)
    step = memc.load(artifact.path)
    return [step(**data) for _ in range(5)]


def test_losses_keep_their_bits(model: onnx.ModelProto, link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = memc.compile(model, train=memc.BuildGradient())
    assert plain.report.offload is None and plain.report.host_bytes == 0
    budget = plain.report.peak_bytes - plain.report.arena_bytes // 2
    moved = memc.compile(model, train=memc.BuildGradient(), memory_budget=budget, offload="auto", link=link)
    report = moved.report
    assert report.peak_bytes <= budget and report.offload is not None
    assert report.offload.offloaded_bytes >= 2**17 and report.host_bytes >= 2**17
    assert report.offload.link == link and report.recomputation is not None and report.recomputation.ops == 0
    data = json.loads(report.to_json())
    assert (
        data["offload"]["offloaded_bytes"] == report.offload.offloaded_bytes and data["host_bytes"] == report.host_bytes
    )
    assert data["policy"] == "auto" and data["added_percent"] == report.recomputation.added_percent
    assert data["added_percent_bound"] is not None and 0 <= data["added_percent_bound"] <= data["added_percent"]
    assert data["added_percent_bound_by"] == "linear program"
    expected = steps(plain)
    for mode in ("thread", "at-start", "at-done", "random:3"):
        monkeypatch.setenv("MEMC_COPIES", mode)
        assert steps(moved) == expected, mode


@pytest.mark.parametrize("policy", ["vdnn-all", "vdnn-dynamic", "largest-first", "all"])
def test_policies_keep_bits_too(
    policy: Any, model: onnx.ModelProto, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = memc.compile(model, train=memc.BuildGradient())
    budget = plain.report.peak_bytes - plain.report.arena_bytes // 3
    moved = memc.compile(model, train=memc.BuildGradient(), memory_budget=budget, offload=policy, link=link)
    data = moved.report.to_dict()
    assert data["peak_bytes"] <= budget and data["offload"]["offloaded_bytes"] >= 2**17
    assert data["policy"] == policy and 0 <= data["added_percent_bound"] <= data["added_percent"]
    for mode in ("at-start", "at-done", "random:5"):
        monkeypatch.setenv("MEMC_COPIES", mode)
        assert steps(moved) == steps(plain), mode


def test_a_policy_that_exceeds_the_budget_is_refused(model: onnx.ModelProto, link: str) -> None:
    options: dict[str, Any] = {"train": memc.BuildGradient(), "plan_only": True, "link": link}
    with pytest.raises(BudgetError) as error:  # There are no convolutions.
        memc.compile(model, **options, memory_budget=2**20, offload="vdnn-conv")
    assert str(error.value).startswith(
        "offload policy vdnn-conv: memory budget of 1048576 bytes (1.00 MiB) cannot be met"
    )
    assert error.value.exit_code == 4


def test_what_is_reported_without_copies(model: onnx.ModelProto, link: str) -> None:
    plain = memc.compile(model, plan_only=True).report.to_dict()
    assert [plain[key] for key in ("policy", "added_percent", "added_percent_bound")] == ["none", None, None]
    roomy = memc.compile(model, plan_only=True, memory_budget=2**40, offload="auto", link=link).report.to_dict()
    assert [roomy[key] for key in ("policy", "added_percent", "added_percent_bound")] == ["auto", 0.0, 0.0]
    assert plain["added_percent_bound_by"] is None and roomy["added_percent_bound_by"] is None
    alone = memc.compile(model, plan_only=True, memory_budget=2**40).report.to_dict()
    assert [alone[key] for key in ("policy", "added_percent", "added_percent_bound")] == ["none", 0.0, None]


def test_a_slow_link_leaves_recomputation(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "slow, and spaced.json"
    way = {"bandwidth": 1e8, "shared": 1e8, "latency": 0.5}
    path.write_text(json.dumps({"link": {"out": way, "in": way}}))
    options: dict[str, Any] = {"train": memc.BuildGradient(), "plan_only": True}
    plain = memc.compile(model, **options).report
    budget = plain.peak_bytes - plain.arena_bytes // 4
    alone = memc.compile(model, **options, memory_budget=budget)
    both = memc.compile(model, **options, memory_budget=budget, offload="auto", link=str(path))
    assert str(both.module) == str(alone.module)
    assert both.report.host_bytes == 0 and both.report.offload is not None and both.report.offload.copies == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"offload": "auto"}, "offload auto: expected a memory budget to keep beside it, got none"),
        ({"host_budget": 1}, "host_budget: expected offload auto beside it, got none"),
        ({"link": "h200"}, "link: expected offload auto beside it, got none"),
        ({"offload": "auto", "memory_budget": 2**20, "link": "h20"}, "did you mean h200?"),
        ({"offload": "auto", "memory_budget": 2**20, "opt_level": 1}, "expected -O2 or -O3 and no pass pipeline"),
        (
            {"offload": "auto", "memory_budget": 2**20, "pass_pipeline": "fuse"},
            "expected -O2 or -O3 and no pass pipeline",
        ),
    ],
)
def test_what_is_missing_is_said(model: onnx.ModelProto, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        memc.compile(model, train=memc.BuildGradient(), plan_only=True, **options)
    assert said in str(error.value)


GOOD = '{"bandwidth": 2e9, "shared": 1e9, "latency": 1e-6}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected JSON as `memc bench --save-profile` writes it: Expecting property name"),
        ("3", "expected an object as `memc bench --save-profile` writes it, got 3"),
        ('{"link": {"out": {}}}', "link: out: bandwidth: expected a number, got nothing; such as {"),
        ('{"link": {"out": 3}}', "expected a link of `out` and `in`, such as {"),
        ('{"link": [1]}', "expected a link of `out` and `in`, such as {"),
        (f'{{"link": {{"out": {GOOD}}}}}', "expected a link of `out` and `in`, such as {"),
        (f'{{"link": {{"out": {GOOD.replace("1e-6", "true")}}}}}', "link: out: latency: expected a number, got True"),
        (f'{{"link": {{"out": {GOOD.replace("2e9", "0")}, "in": {GOOD}}}}}', "1e+08 <= shared <= bandwidth"),
        (f'{{"link": {{"out": {GOOD}, "in": {GOOD.replace("1e9", "3e9")}}}}}', "1e+08 <= shared <= bandwidth"),
        (f'{{"link": {{"out": {GOOD}, "in": {GOOD.replace("1e-6", "NaN")}}}}}', "a latency of 0 to 1 seconds"),
        (
            f'{{"lnk": 3, "ops": {{}}, "device": {{"name": 3}}, "link": {GOOD}}}',
            "expected device, ops, link, got 'lnk'; did you",
        ),
        (
            f'{{"device": {{"name": 3}}, "link": {GOOD}}}',
            "device: expected an object of kind, arch and name, got {'name': 3}",
        ),
        ('{"ops": {"exp": 1e-6}}', "expected a link beside the ops, got none; memc bench --save-profile measures one"),
        ('{"link": 1e-6}', "expected a link of `out` and `in`"),
        ('{"exp(f32[1]) : f32[1]": 1e-6}', "expected a link beside the ops, got none"),
        ('{"exp(f32[1]) : f32[1]": "slow"}', "expected an object of seconds by op signature"),
    ],
)
def test_files_of_links_that_say_none(model: onnx.ModelProto, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        memc.compile(model, plan_only=True, memory_budget=2**20, offload="auto", link=str(path))
    assert str(error.value).startswith(f"link {path}: ") and said in str(error.value)
    assert "\n" not in str(error.value)


def test_measurements_of_other_devices(model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {
        "train": memc.BuildGradient(),
        "plan_only": True,
        "memory_budget": 2**30,
        "offload": "auto",
    }
    path = tmp_path / "p.json"

    def link(device: dict[str, str]) -> str:
        path.write_text(json.dumps({"device": device, "link": {"out": json.loads(GOOD), "in": json.loads(GOOD)}}))
        return str(path)

    gpu = {"kind": "cuda", "arch": "sm_90", "name": "NVIDIA H200"}
    with pytest.raises(
        UsageError, match=r"measured on NVIDIA H200 \(cuda sm_90\), the target is llvm; measure there with"
    ):
        memc.compile(model, **options, link=link(gpu))
    with pytest.raises(UsageError, match=r"measured on NVIDIA H200 \(cuda sm_90\), the target is cuda sm_80"):
        memc.compile(model, **options, target="cuda", arch="sm_80", link=link(gpu))
    monkeypatch.setattr(machine, "PROC", tmp_path)
    plan = memc.compile(model, **options, target="cuda", arch="sm_90", link=link(gpu)).report.offload
    assert plan is not None and plan.link_origin == "measured on NVIDIA H200" and plan.link == str(path)
    found = tmp_path / "driver/nvidia/gpus/0000:01:00.0/information"
    found.parent.mkdir(parents=True)
    found.write_text("Model: \t\t NVIDIA H200\nIRQ:   17\n")
    assert memc.compile(model, **options, target="cuda", arch="sm_90", link=link(gpu)).report.link == str(path)
    other = {**gpu, "name": "NVIDIA H100 80GB HBM3"}
    with pytest.raises(
        UsageError, match=r"measured on NVIDIA H100 80GB HBM3 \(cuda sm_90\), this machine has NVIDIA H200; "
    ):
        memc.compile(model, **options, target="cuda", arch="sm_90", link=link(other))
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some  CPU\n")
    assert memc.compile(model, **options, link=link({"kind": "llvm", "name": "Some CPU"})).report.link == str(path)
    with pytest.raises(UsageError, match="measured on Another CPU .*this machine has Some CPU"):
        memc.compile(model, **options, link=link({"kind": "llvm", "name": "Another CPU"}))


def test_budgets_of_the_host(model: onnx.ModelProto, link: str) -> None:
    options: dict[str, Any] = {"train": memc.BuildGradient(), "plan_only": True, "offload": "auto", "link": link}
    plain = memc.compile(model, train=memc.BuildGradient(), plan_only=True).report
    budget = plain.peak_bytes - plain.arena_bytes // 2
    free = memc.compile(model, **options, memory_budget=budget).report
    for most in (0, free.host_bytes // 2):
        assert memc.compile(model, **options, memory_budget=budget, host_budget=most).report.host_bytes <= most
    with pytest.raises(BudgetError):
        memc.compile(model, **options, memory_budget=plain.peak_bytes // 8)


def slow_link(folder: Path, bandwidth: float, latency: float = 1e-6) -> str:
    path = folder / f"{bandwidth:g}.json"
    way = {"bandwidth": bandwidth, "shared": bandwidth / 2, "latency": latency}
    path.write_text(json.dumps({"link": {"out": way, "in": way}}))
    return str(path)


@pytest.mark.parametrize("bandwidth", [4e8, 1e9, 1e10])
def test_the_report_times_what_the_search_has_planned(model: onnx.ModelProto, tmp_path: Path, bandwidth: float) -> None:
    options: dict[str, Any] = {"train": memc.BuildGradient(), "plan_only": True}
    plain = memc.compile(model, **options).report
    for share in (0.4, 0.55, 0.8):
        budget = int(plain.peak_bytes - (1 - share) * plain.arena_bytes)
        link = slow_link(tmp_path, bandwidth)
        report = memc.compile(model, **options, memory_budget=budget, offload="auto", link=link).report
        found, recomputed = report.offload, report.recomputation
        assert found is not None and recomputed is not None
        once = plain_seconds(model)
        assert 100 * (found.makespan_seconds / once - 1) == pytest.approx(recomputed.added_percent, abs=1e-3)
        assert sum(stall.percent for stall in found.stalls) <= found.waiting_percent + 1e-3
        moved = [each for each in found.values if each.decision.startswith("offloaded")]
        assert sum(each.bytes for each in moved) == found.offloaded_bytes == report.offloaded_bytes
        assert found.lanes["out"].bytes == found.offloaded_bytes and found.lanes["in"].bytes == found.prefetched_bytes
        assert (
            found.lanes["out"].busy_percent >= 100 * found.offloaded_bytes / bandwidth / found.makespan_seconds - 0.01
        )
        again = [each for each in found.values if each.decision.endswith("recomputed")]
        assert bool(again) == bool(recomputed.ops)
        data = json.loads(report.to_json())
        assert data["link"] == link and data["offload"]["link_origin"] == "measured"
        assert data["offload"]["values"][0].keys() == {"value", "type", "bytes", "decision", "reason", "is_result"}
        values = [v for v in parse(str(memc.compile(model, **options).module)).main.values() if v.type.nbytes >= 2**16]
        listed = {each.value for each in found.values}
        assert listed >= {v.name for v in values if v.op is None or v.op.name not in ("reshape", "slice")}


def plain_seconds(model: onnx.ModelProto) -> float:
    """One run of every op, in the cost model."""
    module = memc.compile(model, train=memc.BuildGradient(), plan_only=True).module
    costs = CostModel(DEVICES["llvm"])
    return sum(costs.cost(op) for op in module.main.ops) / 1e12


def test_what_is_not_copied_is_said(model: onnx.ModelProto, link: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"train": memc.BuildGradient(), "plan_only": True}
    plain = memc.compile(model, **options)
    assert plain.report.link is None and plain.report.offloaded_bytes == 0 and plain.report.offload is None
    options |= {"offload": "auto"}
    room = memc.compile(model, **options, memory_budget=plain.report.peak_bytes)
    assert str(room.module) == str(plain.module) and room.report.host_bytes == 0
    assert room.report.offload is not None and room.report.offload.values == []
    assert room.report.offload.verdict == "nothing is copied: the budget is kept without"
    assert room.report.link == "memory"
    assert room.report.offload.link_origin == "memc's table of links, which `llvm` has by itself"
    budget = plain.report.peak_bytes - plain.report.arena_bytes // 3
    none = memc.compile(model, **options, memory_budget=budget, link=link, host_budget=0).report.offload
    assert none is not None and none.verdict == "nothing is copied: the host budget is 0 B" and none.copies == 0
    slow = memc.compile(model, **options, memory_budget=budget, link=slow_link(tmp_path, 2e8, 0.1)).report.offload
    assert slow is not None and slow.copies == 0
    assert slow.verdict.startswith("nothing is copied: recomputation alone is as quick over the link ")
    assert any(each.decision == "recomputed" and "a copy out and back takes" in each.reason for each in slow.values)


def test_addresses_above_the_host_budget_are_refused(model: onnx.ModelProto, link: str) -> None:
    options: dict[str, Any] = {"train": memc.BuildGradient(), "plan_only": True, "offload": "auto", "link": link}
    plain = memc.compile(model, train=memc.BuildGradient(), plan_only=True).report
    report = memc.compile(model, **options, memory_budget=plain.peak_bytes - plain.arena_bytes // 2).report
    driver._keep_host_budget(report, report.host_bytes)
    with pytest.raises(
        BudgetError, match=f"copies take {report.host_bytes} bytes with their addresses; allow as many"
    ) as error:
        driver._keep_host_budget(report, report.host_bytes - 1)
    assert error.value.exit_code == 4
