# SPDX-License-Identifier: Apache-2.0
"""Budgets and optimizer states on the host, from a model to a report."""

from __future__ import annotations

import io
import json
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import memc
from memc.compile_options import Options
from memc.ir.copies import host_params
from memc.ir.errors import BudgetError, UsageError
from memc.ir.sizes import align
from memc.passes.pipelines import pipeline
from memc.report.compile_report import Report
from memc.report.terminal_tables import print_compilation

WIDTH = 128
ONE = WIDTH * WIDTH * 4
"""Bytes of a weight, and of each of its moments."""


def deep(layers: int, rows: int) -> onnx.ModelProto:
    rng, last, nodes, weights = np.random.default_rng(0), "x", [], []
    for n in range(layers):
        weights.append(numpy_helper.from_array((rng.standard_normal((WIDTH, WIDTH)) / 12).astype(np.float32), f"w{n}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{n}"], [f"m{n}"]),
            helper.make_node("Tanh", [f"m{n}"], [f"t{n}"]),
        ]
        last = f"t{n}"
    data = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, WIDTH]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "deep", data[:1], data[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@cache
def planned(layers: int = 5, rows: int = 256, target: str = "llvm", **options: Any) -> memc.Compilation:
    how: dict[str, Any] = {"target": target, "plan_only": True, "train": memc.BuildGradient(optimizer="adam")}
    return memc.compile(deep(layers, rows), **how | options)


def within(budget: int, states: str = "auto", **options: Any) -> Report:
    report = planned(memory_budget=budget, offload="auto", offload_states=states, **options).report
    assert report.peak_bytes <= budget
    return report


def test_a_budget_that_is_kept_for_nothing_gives_the_same_plan() -> None:
    plain = planned().report
    for budget in (plain.peak_bytes, plain.peak_bytes - ONE):
        moved, kept = (
            planned(memory_budget=budget, offload="auto", offload_states=states) for states in ("auto", "none")
        )
        assert kept.report.added_percent == 0 and moved.report.states is None
        assert str(moved.module) == str(kept.module)


def test_states_make_room_that_values_do_not() -> None:
    plain = planned().report
    least = plain.weights_bytes + plain.io_bytes
    assert least > plain.peak_bytes // 2
    with pytest.raises(BudgetError, match="cannot be met: the least reachable peak"):
        within(least, "none")
    report = within(least)
    assert report.states is not None and report.states.bytes <= report.host_bytes
    assert report.weights_bytes == plain.weights_bytes - report.states.bytes


def test_never_slower_than_with_states_on_the_device() -> None:
    plain = planned().report
    for share in (90, 75):
        budget = plain.peak_bytes * share // 100
        try:
            without = within(budget, "none")
        except BudgetError:
            continue
        report = within(budget)
        assert report.added_percent is not None and without.added_percent is not None
        assert report.added_percent <= without.added_percent


def test_the_host_budget_holds_states_too() -> None:
    plain = planned().report
    budget = plain.peak_bytes - 4 * ONE
    for host in (4 * ONE,):
        report = within(budget, host_budget=host)
        assert report.host_bytes <= host
    with pytest.raises(BudgetError):
        planned(offload_states="all", host_budget=2 * ONE)


def test_all_states_move_with_and_without_a_budget() -> None:
    plain = planned().report
    for report in (planned(offload_states="all").report, within(plain.peak_bytes - 6 * ONE, "all")):
        assert report.states is not None
        names = {f"w{n}.{kind}" for n in range(5) for kind in ("exp_avg", "exp_avg_sq")}
        assert set(report.states.states) == names and report.states.bytes == 10 * ONE
        assert report.weights_bytes == plain.weights_bytes - 10 * ONE
        assert report.states.copied_in_bytes == report.states.copied_out_bytes == 10 * ONE
        assert report.states.resident["w0"].startswith("is read by ")
        assert report.states.resident["step"].startswith("is below the least copy")
        assert report.host_bytes >= 10 * ONE


def test_joined_updates_are_split_into_groups_that_have_room() -> None:
    """On CUDA all updates of resident states are few kernels, which need all states at once."""
    layers = 24
    resident = planned(layers, 64, "cuda")
    assert max(Counter(joint_of(resident)).values()) > layers
    for extra in (3, 8):
        budget = resident.report.peak_bytes - 2 * (layers - extra) * ONE
        compilation = planned(layers, 64, "cuda", memory_budget=budget, offload="auto", offload_states="all")
        report = compilation.report
        assert report.peak_bytes <= budget and report.states is not None
        assert report.states.bytes == 2 * layers * ONE and report.states.groups >= 2
        assert 3 * max(Counter(joint_of(compilation)).values(), default=0) * ONE <= report.arena_bytes


def joint_of(compilation: memc.Compilation) -> list[int]:
    """The number of the kernel of each update that is one of several in one."""
    return [
        op.plan.joint for op in compilation.module.main.ops if op.plan.lane is not None and op.plan.joint is not None
    ]


def test_what_the_report_says() -> None:
    report = planned(offload_states="all").report
    data = json.loads(report.to_json())
    states = data["states"]
    assert data["link"] == states["link"] == "memory" and data["offloaded_bytes"] == states["copied_out_bytes"]
    assert data["host_bytes"] == align(10 * ONE, 64) and data["added_percent"] == states["added_percent"] >= 0
    assert states["lanes"]["in"]["bytes"] == states["copied_in_bytes"] and states["lanes"]["out"]["copies"] == 10
    assert 0 < states["lanes"]["in"]["busy_percent"] < 100 and states["window_bytes"] >= 2 * ONE
    assert planned().report.states is None


@pytest.mark.parametrize("options", [{}, {"memory_budget": 1 << 30, "offload": "auto"}])
def test_nothing_to_move_is_said(options: dict[str, Any]) -> None:
    """Plain gradient descent has no states but weights, which products read."""
    report = planned(train=memc.BuildGradient(), offload_states="all", **options).report
    states = report.states
    assert states is not None and not states.states and report.host_bytes == 0 and states.added_percent == 0
    assert states.summary == "no state lies on the host: most often, it is read by matmul, too"
    assert report.order_gain_percent == planned(train=memc.BuildGradient()).report.order_gain_percent
    console = Console(file=io.StringIO(), width=200)
    print_compilation(console, "deep", report, None)
    assert states.summary in console.file.getvalue()  # type: ignore[attr-defined]
    assert planned(train=memc.BuildGradient(), **options).report.states is None


def test_masters_come_in_twice() -> None:
    compilation = planned(precision="bf16", offload_states="all")
    states = compilation.report.states
    assert states is not None and "w0" in states.states
    assert states.copied_out_bytes == 15 * ONE and states.copied_in_bytes == 20 * ONE
    assert {state.name for state in host_params(compilation.module.main)} == set(states.states)


def test_as_many_states_as_take_little_time() -> None:
    whole = planned(rows=16, offload_states="all").report.states
    assert whole is not None and whole.added_percent > 0
    text = pipeline(2, "llvm", states="all")
    for share, most in ((0.9, 9), (0.0, 0)):
        limit = whole.added_percent * share
        changed = text.replace("host-states", f"host-states{{most-added={limit}}}")
        found = planned(rows=16, pass_pipeline=changed).report.states
        assert found is not None and len(found.states) <= most and found.added_percent <= limit


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offload_states": "some"}, "offload_states: expected one of none, auto, all"),
        ({"offload_states": "all", "opt_level": 1}, "offload_states all: expected -O2 or -O3"),
        (
            {"offload_states": "all", "pass_pipeline": "fuse"},
            "offload_states all: expected -O2 or -O3 and no pass pipeline",
        ),
        (
            {"offload_states": "all", "memory_budget": 1},
            "offload_states all: expected offload auto beside a memory budget",
        ),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options(**options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("layers, rows", [(4, 32), (4, 128)])
def test_a_budget_that_is_too_low_names_one_that_is_kept(layers: int, rows: int) -> None:
    plain = planned(layers, rows).report.peak_bytes
    with pytest.raises(BudgetError) as caught:
        planned(layers, rows, memory_budget=1 << 16, offload="auto")
    assert caught.value.least is not None and caught.value.least < plain
    assert within(caught.value.least, layers=layers, rows=rows).peak_bytes <= caught.value.least
