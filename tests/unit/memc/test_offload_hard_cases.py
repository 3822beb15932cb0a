# SPDX-License-Identifier: Apache-2.0
"""Training steps and plans with copies that are hard in one way each, and the list of all such cases in `docs/testing.md`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.frontend.memir import verified
from memc.ir.copies import has_copies
from memc.ir.errors import BudgetError, CheckError, InvalidError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.passes.manager import PassManager
from memc.report.compile_report import Report

ROOT = Path(__file__).resolve().parents[3]

OVERWRITTEN = """
func @main(%x: f32[64] {role = input}) -> f32[64] {
  %a = exp(%x) : f32[64] @arena[0]
  %h0 = offload_start(%a) {lane = "d2h"} : f32[64] @host[0]
  %b = relu(%a) : f32[64] @arena[256]
  %h = offload_done(%h0, %a) : f32[64] alias %h0[0] @host[0]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[64] @arena[512]
  %p = prefetch_done(%p0, %h) : f32[64] alias %p0[0] @arena[512]
  %y = add(%b, %p) : f32[64]
  return %y
}
"""


def test_no_op_overwrites_what_is_being_copied() -> None:
    """Its reader may not be in place until the copy is over."""
    check_copy_races(verified(parse(OVERWRITTEN), "text"))
    line = "%b = relu(%a) plan {in_place = 0} : f32[64] alias %a[0] @arena[0]"
    changed = OVERWRITTEN.replace("%b = relu(%a) : f32[64] @arena[256]", line)
    with pytest.raises(
        CheckError, match="op 2 relu, %b: expected a wait for the copy of %a that op 1 offload_start began"
    ):
        check_copy_races(parse(changed))
    with pytest.raises(InvalidError):
        verified(parse(changed), "text")
    unplaced = re.sub(r" (alias %h0\[0\] |alias %p0\[0\] )?@(arena|host)\[\d+\]", "", OVERWRITTEN)
    module = verified(parse(unplaced), "text")
    x = {"x": np.linspace(-1, 1, 64, dtype=np.float32)}
    expected = evaluate(module, x)
    PassManager.parse("in-place,assign-addresses").run(module)
    assert next(op for op in module.main.ops if op.name == "relu").plan.in_place is None
    assert all(evaluate_in_arena(module, x, copies="done")[n].tobytes() == v.tobytes() for n, v in expected.items())


WIDTH, BATCH, LAYERS = 64, 64, 5


def network() -> onnx.ModelProto:
    """Layers of a product, batch norm and dropout."""
    rng, last = np.random.default_rng(0), "x"
    nodes, weights = [], [numpy_helper.from_array(np.array(0.25, np.float32), "ratio")]
    weights.append(numpy_helper.from_array(np.array(False), "training"))
    for n in range(LAYERS):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.15, (WIDTH, WIDTH)).astype(np.float32), f"w{n}"))
        for name, value in (("scale", 1.0), ("bias", 0.1), ("mean", 0.0), ("var", 1.0)):
            weights.append(numpy_helper.from_array(np.full(WIDTH, value, np.float32), f"n{n}.{name}"))
        names = [f"m{n}", *(f"n{n}.{name}" for name in ("scale", "bias", "mean", "var"))]
        nodes += [
            helper.make_node("MatMul", [last, f"w{n}"], [f"m{n}"]),
            helper.make_node("BatchNormalization", names, [f"b{n}"]),
            helper.make_node("Tanh", [f"b{n}"], [f"t{n}"]),
            helper.make_node("Dropout", [f"t{n}", "ratio", "training"], [f"d{n}"], name=f"drop{n}"),
        ]
        last = f"d{n}"
    data = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, WIDTH]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "network", data[:1], data[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def link(folder: Path, bandwidth: float) -> str:
    path = folder / f"{bandwidth:g}.json"
    way = {"bandwidth": bandwidth, "shared": bandwidth / 2, "latency": 1e-7}
    path.write_text(json.dumps({"link": {"out": way, "in": way}}))
    return str(path)


def bits(compilation: memc.Compilation) -> list[bytes]:
    """Of the losses of some steps, and of all states after them."""
    step: Any = compilation.load()
    rng, found = np.random.default_rng(3), []
    for _ in range(4):
        x = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)
        found.append(np.float64(step(x, rng.integers(0, WIDTH, BATCH))).tobytes())
    return [*found, *(array.tobytes() for _, array in sorted(step.state().items()))]


def test_masks_and_running_statistics_beside_copies_and_recomputation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recomputed from a value that came back has the bits of the first time, and statistics change once a step."""
    options: dict[str, Any] = {"train": memc.BuildGradient(), "workspace": "none"}
    plain = memc.compile(network(), **options)
    expected = bits(plain)
    for share in (0.6, 0.45):
        budget = plain.report.peak_bytes - int((1 - share) * plain.report.arena_bytes)
        pipeline = plain.report.pipeline.replace(
            "reorder{", f"offload{{budget={budget} total=true least-copy=4096 link={link(tmp_path, 1e9)} "
        ).replace("solver=auto slack", "slack")
        moved = memc.compile(
            network(), train=memc.BuildGradient(), pass_pipeline=re.sub(r"^[^,]*build-gradient[^,]*,", "", pipeline)
        )
        assert moved.report.peak_bytes <= budget
        assert has_copies(moved.module.main) and any(op.plan.recompute for op in moved.module.main.ops)
        for times in ("at-start", "at-done", "random:2"):
            monkeypatch.setenv("MEMC_COPIES", times)
            assert bits(moved) == expected, (share, times)


def test_where_nothing_is_worth_it_the_plan_is_that_without(tmp_path: Path) -> None:
    options: dict[str, Any] = {"plan_only": True, "train": memc.BuildGradient()}
    plain = memc.compile(network(), **options)
    roomy = memc.compile(
        network(), **options, memory_budget=plain.report.peak_bytes, offload="auto", link=link(tmp_path, 1e12)
    )
    assert str(roomy.module) == str(plain.module) and roomy.report.host_bytes == 0
    assert roomy.report.offload is not None
    assert roomy.report.offload.verdict == "nothing is copied: the budget is kept without"


def test_sweep_of_budgets_and_links(tmp_path: Path) -> None:
    """A lower budget gives no larger peak, and never less time; copies never take longer than recomputation alone."""
    options: dict[str, Any] = {"plan_only": True, "train": memc.BuildGradient()}
    plain = memc.compile(network(), **options).report
    for bandwidth in (1e9, 1e13):
        peaks, added = [], []
        for share in (90, 75, 60):
            budget = plain.peak_bytes - (100 - share) * plain.arena_bytes // 100
            found: list[Report | None] = []
            for offload in ("none", "auto"):
                more: dict[str, Any] = {}
                if offload == "auto":
                    more = {"offload": "auto", "link": link(tmp_path, bandwidth)}
                try:
                    found.append(memc.compile(network(), **options, memory_budget=budget, **more).report)
                except BudgetError:
                    found.append(None)
            alone, both = found
            if both is None:
                assert alone is None
                break
            assert both.added_percent is not None
            assert alone is None or alone.added_percent is None or both.added_percent <= alone.added_percent
            peaks.append(both.peak_bytes)
            added.append(both.added_percent)
        assert len(peaks) == 3 and peaks == sorted(peaks, reverse=True) and added == sorted(added)


def test_each_hard_case_has_a_test() -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\|$", text.split("## Hard cases of copies")[1], re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 27))
    for number, cell in rows:
        named = re.findall(r"`([^`:]+)(?:::(\w+))?`", cell)
        assert named, number
        for path, test in named:
            source = (ROOT / "tests" / path).read_text()
            assert not test or f"def {test}(" in source, (number, path, test)
