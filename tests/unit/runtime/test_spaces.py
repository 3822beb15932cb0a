# SPDX-License-Identifier: Apache-2.0
"""Artifacts whose values lie in several memory spaces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import memc
from memc.ir.errors import InvalidError, MemcError, UnsupportedError, UsageError
from memc.ir.evaluate.arena import evaluate_in_arena
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.runtime.artifact.plan_text import parsed, sealed

TEXT = """\
space @near {device = "cpu:0"}
space @spare {device = "cpu:0"}

func @main(%x: f32[N,8] {role = input}, %w: f32[8] {role = weight}) -> (f32[N,8] {name = "y"}) {
  %a = exp(%x) : f32[N,8] @arena[0]
  %b = add(%a, %w) : f32[N,8] @near[64]
  %c = tanh(%b) : f32[N,8] @arena[0]
  %d = neg(%c) : f32[N,8] @near[4096]
  %e = mul(%d, %b) : f32[N,8] @arena[4096]
  %y = add(%e, %c) : f32[N,8]
  return %y
}
"""

W = np.linspace(-1, 1, 8).astype(np.float32)


def module(batch: int) -> Module:
    made = parse(TEXT.replace("N", str(batch)))
    made.weights["w"] = W
    return made


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 16])
def test_several_spaces(batch: int) -> None:
    x = np.random.default_rng(batch).normal(size=(batch, 8)).astype(np.float32)
    done = memc.compile(module(batch), pass_pipeline="")
    executable = done.load()
    b = np.exp(x.astype(np.float64)) + W
    expected = -np.tanh(b) * b + np.tanh(b)
    other = executable.session()
    for run in (executable, other):
        np.testing.assert_allclose(run(x)["y"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(evaluate_in_arena(module(batch), {"x": x})["y"], expected, rtol=1e-5, atol=1e-6)
    assert list(executable.storages) == ["arena", "weights", "near"]
    assert other.storages["near"] is not executable.storages["near"]
    assert other.storages["weights"] is executable.storages["weights"]
    end = 4096 + -(-32 * batch // 64) * 64
    assert executable.statistics() == {
        "arena": end,
        "weights": 64,
        "near": end,
        "inputs": 32 * batch,
        "outputs": 32 * batch,
    }
    assert done.report.footprint["near"] == end and done.report.peak_bytes == 2 * end + 64 + 64 * batch
    assert executable.manifest.footprint.peak == done.report.peak_bytes


def test_the_plan_says_where_everything_lies(tmp_path: Path) -> None:
    path = tmp_path / "model.memc"
    memc.compile(module(2), path, pass_pipeline="")
    plan = json.loads((path / "plan.json").read_text())
    assert plan["devices"] == ["cpu:0"]
    assert [(s["name"], s["holds"], s["alignment"], s["bytes"]) for s in plan["spaces"]] == [
        ("arena", "values", 64, 4160),
        ("weights", "weights", 64, 64),
        ("io", "io", 64, 128),
        ("near", "values", 64, 4160),
    ]
    assert [(v["name"], v["space"], v["offset"]) for v in plan["values"]] == [
        ("a", "arena", 0), ("c", "arena", 0), ("e", "arena", 4096), ("b", "near", 64), ("d", "near", 4096),
    ]  # fmt: skip
    assert [t["space"] for key in ("inputs", "outputs", "weights") for t in plan[key]] == ["io", "io", "weights"]


@pytest.mark.parametrize("number, name", [(0, "arena"), (1, "weights"), (3, "near")])
def test_spaces_of_other_code_are_refused(tmp_path: Path, number: int, name: str) -> None:
    path = tmp_path / "model.memc"
    memc.compile(module(2), path, pass_pipeline="")
    plan = parsed((path / "plan.json").read_bytes())
    for change in ({"bytes": plan["spaces"][number]["bytes"] + 64}, {"alignment": 32}):
        spaces = [{**s, **change} if n == number else s for n, s in enumerate(plan["spaces"])]
        assert spaces[number]["name"] == name
        (path / "plan.json").write_bytes(sealed({**plan, "spaces": spaces}))
        with pytest.raises(InvalidError, match="is not of this model.so: spaces: the code has"):
            memc.load(path)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("@near[64]", "@far[64]", "expected a place in a space of the target"),
        ("@near[64]", "@weights[64]", "expected a place in a space of the target"),
        ('@near {device = "cpu:0"}', '@near {device = "cpu:1"}', "space near: expected it on cpu:0, which runs the kernels"),
        ("@near[4096]", "@near[64]", "%b: expected its data at byte 64 of its space, got %d"),
    ],
)  # fmt: skip
def test_places_that_code_cannot_use(old: str, new: str, says: str) -> None:
    made = parse(TEXT.replace("N", "2").replace(old, new))
    made.weights["w"] = W
    with pytest.raises(MemcError, match=says) as caught:
        memc.compile(made, pass_pipeline="")
    assert isinstance(caught.value, (InvalidError, UnsupportedError, UsageError)) and "\n" not in str(caught.value)


def test_spaces_on_other_devices_are_planned() -> None:
    made = parse(TEXT.replace("N", "2").replace('@near {device = "cpu:0"}', '@near {device = "cpu:1"}'))
    report = memc.compile(made, pass_pipeline="", plan_only=True).report
    assert report.footprint["near"] == 4160 and report.peak_bytes == 4160 + 64 + 128
