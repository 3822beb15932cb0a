# SPDX-License-Identifier: Apache-2.0
"""Recomputation under a budget: kept exactly, by ever lower peaks, with the same bits."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest

import memc
from memc.ir.core import Role
from memc.ir.cost_model import DEVICES, CostModel, signature
from memc.ir.errors import BudgetError, UsageError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot
from memc.ir.text.parser import parse
from memc.passes.budget import Budget
from memc.passes.manager import PassManager
from memc.passes.order.reorder import Search
from memc.passes.recompute.choices import Choice, Choices
from memc.passes.recompute.problem import RecomputeGraph
from memc.passes.recompute.rematerialize import rematerialize
from memc.passes.training.build_gradient import build_gradient
from memc.passes.training.losses import Loss
from memc.passes.training.optimizers import Optimizer
from memc.report.compile_report import Recomputed
from memc.solvers.offload import Schedule
from memc.solvers.recompute import RecomputePlan

from ..training.test_mirror import residual

PREPARE = "materialize-returns,canonicalize,decompose,canonicalize"
FINISH = "in-place,assign-addresses"


def training_step(layers: int = 12, optimizer: str = "sgd") -> Module:
    module = residual(layers)
    build_gradient(module, Loss("mse"), Optimizer(optimizer, momentum=0.9 if optimizer == "sgd" else 0.0))
    PassManager.parse(PREPARE).run(module)
    return module


def inputs_of(module: Module) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    given = {p.name: rng.normal(size=p.type.shape).astype(np.float32) for p in module.main.params_of(Role.INPUT)}
    return {**given, "learning_rate": np.float32(0.1)}


def planned(module: Module, options: str) -> Module:
    PassManager.parse(f"rematerialize{{work=1000000 slack=0.001 {options}}},{FINISH}").run(module)
    return module


@pytest.mark.parametrize("percent", [85, 60, 35])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_budget_is_kept_with_the_same_bits(optimizer: str, percent: int) -> None:
    module = training_step(optimizer=optimizer)
    whole = arena_bytes(planned(copy.deepcopy(module), "").main)
    expected = evaluate(module, inputs_of(module))
    again = planned(copy.deepcopy(module), f"budget={percent}%")
    assert arena_bytes(again.main) <= whole * percent // 100
    assert any(op.plan.recompute for op in again.main.ops)
    found = evaluate_in_arena(again, inputs_of(module))
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_lower_budget_never_gives_a_larger_arena() -> None:
    module = training_step(16)
    costs = CostModel(DEVICES["llvm"])
    before = Snapshot.of(module, module.main)
    search = Search(work=1_000_000, slack=0.001)
    whole = rematerialize(module, module.main, Budget(2**40), costs, search=search).arena
    arenas, added = [], []
    for percent in range(100, 30, -7):
        before.restore()
        found = rematerialize(module, module.main, Budget(whole * percent // 100), costs, search=search)
        assert found.arena <= whole * percent // 100
        arenas.append(found.arena)
        added.append(found.added)
    assert arenas == sorted(arenas, reverse=True)
    assert added == sorted(added)
    assert added[0] == 0 < added[-1] < 1


def test_of_the_plans_that_fit_the_cheapest_comes_first() -> None:
    module = training_step(1)
    graph = RecomputeGraph.of(module.main, CostModel(DEVICES["llvm"]).cost)
    plans = [RecomputePlan((), peak, added) for peak, added in ((100, 0), (80, 5), (70, 9), (60, 9), (50, 20), (79, 5))]
    choices = Choices(
        module.main, 64, tuple(Choice(graph, (), Schedule.of_runs(graph.problem, plan)) for plan in plans)
    )

    def fitting(budget: int) -> list[tuple[int, int]]:
        return [(choice.plan.peak, choice.plan.added_cost) for choice in choices.fitting(budget)]

    assert fitting(100) == [(100, 0), (79, 5), (80, 5), (60, 9), (70, 9), (50, 20)]
    assert fitting(99) == fitting(80) == [(79, 5), (80, 5), (60, 9), (70, 9), (50, 20)]
    assert fitting(79)[0] == (79, 5) and fitting(69) == [(60, 9), (50, 20)]
    assert fitting(50) == [(50, 20)] and fitting(49) == []
    assert choices.least().plan.peak == 50


def test_nothing_runs_again_without_need() -> None:
    module = planned(training_step(), "")
    assert not any(op.plan.recompute for op in module.main.ops)


def test_too_low_a_budget_names_the_least_that_can_be_reached() -> None:
    module = training_step(5)
    before = str(module)
    with pytest.raises(
        BudgetError, match=r"memory budget of 64 bytes .* the least reachable peak is (\d+) bytes"
    ) as error:
        planned(module, "budget=64")
    assert str(module) == before
    least = int(str(error.value).split("least reachable peak is ")[1].split(" ")[0])
    assert arena_bytes(planned(module, f"budget={least}").main) <= least


def test_a_state_is_not_read_after_its_update() -> None:
    """Whatever reads a weight runs before the weight's new content is written over it."""
    module = planned(training_step(), "budget=40%")
    assigned = set()
    for op in module.main.ops:
        assert not assigned & set(op.operands)
        if op.name == "assign":
            assigned.add(op.operands[0])
    assert len(assigned) == 24  # Weights and momenta.


def test_views_follow_what_they_look_into() -> None:
    module = parse(
        """
func @main(%x: f32[64,4] {role = input}) -> (f32[] {name = "y"}) {
  %a = exp(%x) : f32[64,4]
  %v = reshape(%a) {shape = [4, 64]} : f32[4,64]
  %b = transpose(%v) {perm = [1, 0]} : f32[64,4]
  %c = sin(%b) : f32[64,4]
  %d = transpose(%c) {perm = [1, 0]} : f32[4,64]
  %e = mul(%d, %v) : f32[4,64]
  %y = reduce_sum(%e) {axes = [0, 1], keepdims = false} : f32[]
  return %y
}
"""
    )
    x = {"x": np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)}
    expected = evaluate(module, x)["y"]
    PassManager.parse("materialize-returns").run(module)
    planned(module, "budget=2KiB")
    assert arena_bytes(module.main) <= 2048
    assert sum(op.name == "reshape" for op in module.main.ops) == 2
    np.testing.assert_array_equal(evaluate_in_arena(module, x)["y"], expected)


def test_measured_seconds_count(tmp_path: Path) -> None:
    """What a profile calls slow is not recomputed where something else can be."""
    module = training_step()
    slow = {signature(op): 1.0 for op in module.main.ops if op.name == "add"}
    assert slow
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(slow))

    def repeated(options: str) -> set[str]:
        again = planned(copy.deepcopy(module), options)
        return {op.name for op in again.main.ops if op.plan.recompute}

    assert repeated("budget=85%") == {"add"}
    assert "add" not in repeated(f"budget=85% profile={profile}")


@pytest.mark.parametrize("content", ["[]", "{", '{"a": -1}'])
def test_bad_profiles(tmp_path: Path, content: str) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(content)
    with pytest.raises(UsageError, match=r"^profile .*profile.json"):
        planned(training_step(2), f"budget=50% profile={profile}")


@pytest.mark.parametrize(
    "text", ["budget=", "budget=much", "budget=120%", "budget=-1", "slack=1", "work=-1", "alignment=48"]
)
def test_bad_budgets(text: str) -> None:
    with pytest.raises(UsageError, match="rematerialize"):
        PassManager.parse(f"rematerialize{{{text}}}")


def test_compile_keeps_the_memory_budget(tmp_path: Path) -> None:
    """Weights, states, inputs and outputs count; the artifact computes what one without a budget does."""
    losses, reports = [], []
    full = 0
    for share in (100, 100, 70):
        module = residual(12)
        budget = full * share // 100 or None
        compilation = memc.compile(
            module, train=memc.BuildGradient(loss="mse", optimizer="sgd"), memory_budget=budget, kernels="generated"
        )
        full = full or compilation.report.peak_bytes
        reports.append(compilation.report)
        step = compilation.load()
        step.learning_rate = 0.05
        given = inputs_of(residual(12)) | {"labels": np.zeros((64, 8), np.float32)}
        losses.append([float(step(given["x"], given["labels"])) for _ in range(5)])
    assert reports[1].peak_bytes == full  # New contents of states are no outputs, so nothing had to be recomputed.
    assert reports[2].peak_bytes <= full * 70 // 100
    assert reports[2].arena_bytes < reports[0].arena_bytes
    assert reports[0].recomputation is None
    assert reports[1].recomputation == Recomputed(0, 0.0, reports[0].arena_bytes, full)
    found = reports[2].recomputation
    assert found is not None and found.ops > 0 and 0 < found.added_percent < 100
    assert (found.arena_bytes_without, found.peak_bytes_without) == (reports[0].arena_bytes, full)
    assert losses[0] == losses[1] == losses[2]


def test_the_exact_solver_is_never_costlier_and_keeps_budget_and_bits() -> None:
    module = training_step(3)
    expected = evaluate(module, inputs_of(module))
    costs = CostModel(DEVICES["llvm"])
    search = Search(work=1_000_000, slack=0.001)
    before = Snapshot.of(module, module.main)
    whole = rematerialize(module, module.main, Budget(2**40), costs, search=search).arena
    added = {}
    for solver in ("search", "exact"):
        before.restore()
        found = rematerialize(module, module.main, Budget(whole * 3 // 4), costs, search=search, solver=solver)
        assert found.arena <= whole * 3 // 4
        added[solver] = found.added
    assert 0 < added["exact"] <= added["search"]
    PassManager.parse(FINISH).run(module)
    for name, value in evaluate_in_arena(module, inputs_of(module)).items():
        np.testing.assert_array_equal(value, expected[name])


def test_the_exact_solver_refuses_large_functions() -> None:
    module = training_step(40)
    before = str(module)
    with pytest.raises(UsageError, match=r"rematerialize: solver=exact takes functions of at most 400 ops"):
        planned(module, "budget=50% solver=exact")
    assert str(module) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time-limit=2s", "rematerialize: expected solver=exact beside time-limit, got solver=search"),
        ("solver=best", "solver"),
    ],
)
def test_bad_solvers(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PassManager.parse(f"rematerialize{{{text}}}")


HELD = """
func @main(%x: f32[64] {role = input}) -> f32[64] {
  %a = exp(%x) : f32[64]
  %h = HOLD(%a) : f32[64]
  %best = reduce_max(%h) {axes = [0], keepdims = true} : f32[1]
  %b = neg(%x) : f32[64]
  %c = exp(%b) : f32[64]
  %d = reduce_sum(%c) {axes = [0], keepdims = true} : f32[1]
  %e = div(%c, %d) : f32[64]
  %hit = equal(%h, %best) : bool[64]
  %r = select(%hit, %e, %x) : f32[64]
  return %r
}
"""


@pytest.mark.parametrize(("op", "held"), [("hold", True), ("neg", False)])
def test_what_is_held_is_computed_once(op: str, held: bool) -> None:
    graph = RecomputeGraph.of(parse(HELD.replace("HOLD", op)).main, lambda op: 1)
    exponential = next(number for number, unit in enumerate(graph.units) if unit[0].name == "exp")
    assert graph.problem.once[exponential] is held
    assert [op for unit in graph.units for op in unit if op.name == "hold"] == []
    in_place = parse(HELD.replace("HOLD", op))
    PassManager.parse("in-place").run(in_place)
    graph = RecomputeGraph.of(in_place.main, lambda op: 1)
    assert {unit[0].results[0].name for unit, once in zip(graph.units, graph.problem.once) if once} >= (
        {"a"} if held else set()
    )
