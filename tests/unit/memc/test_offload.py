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
from memc.ir.errors import BudgetError, UsageError

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected a JSON object with `link`"),
        ('{"link": {"out": {}}}', "expected a JSON object with `link`"),
        (
            '{"link": {"out": {"bandwidth": 0, "shared": 0, "latency": 0}, "in": {"bandwidth": 1e9, "shared": 1e9, "latency": 0}}}',
            "<= shared",
        ),
    ],
)
def test_files_of_links_that_say_none(model: onnx.ModelProto, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        memc.compile(model, plan_only=True, memory_budget=2**20, offload="auto", link=str(path))
    assert said in str(error.value)


def test_budgets_of_the_host(model: onnx.ModelProto, link: str) -> None:
    options: dict[str, Any] = {"train": memc.BuildGradient(), "plan_only": True, "offload": "auto", "link": link}
    plain = memc.compile(model, train=memc.BuildGradient(), plan_only=True).report
    budget = plain.peak_bytes - plain.arena_bytes // 2
    free = memc.compile(model, **options, memory_budget=budget).report
    for most in (0, free.host_bytes // 2):
        assert memc.compile(model, **options, memory_budget=budget, host_budget=most).report.host_bytes <= most
    with pytest.raises(BudgetError):
        memc.compile(model, **options, memory_budget=plain.peak_bytes // 8)
