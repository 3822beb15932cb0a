# SPDX-License-Identifier: Apache-2.0
"""Random modules under random budgets with copies: the budget is kept, or named unreachable, and results keep their bits."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.ir.build import IRBuilder
from memc.ir.copies import has_copies
from memc.ir.core import Function, Op, Role, Value
from memc.ir.errors import BudgetError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes, space_bytes
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.problem import RecomputeGraph, is_whole_view
from memc.passes.recompute.rewrite import rewrite
from memc.report.decisions import decisions_of
from memc.report.origins import lives_of
from memc.report.timeline import timeline
from memc.solvers.offload import Lane, Lanes, OffloadProblem, Schedule, Step, measure_schedule, offload_ladder
from memc.solvers.offload_policies.choose import PolicyName
from memc.solvers.recompute import recompute_ladder

from .graphs import inputs_of, modules

QUICK = Lane(latency=10, per_mib=1 << 20)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A link so quick that tensors of any size are worth a copy."""
    path = tmp_path_factory.mktemp("link") / "link.json"
    way = {"bandwidth": 1e13, "shared": 6e12, "latency": 1e-9}
    path.write_text(json.dumps({"link": {"out": way, "in": way}}))
    return path


def step(seed: int) -> Module:
    """A function like a training step: a chain of ops, and then one back along it that reads what each of them gave."""
    chosen = random.Random(seed)
    module = Module([Function([Value("x", TensorType(DType.F32, (4, 32)), role=Role.INPUT)])])
    build = IRBuilder(module, module.main, module.main.ops)
    made = list(module.main.params)
    for _ in range(chosen.randrange(6, 14)):
        other = chosen.choice(made)
        name = chosen.choice(("tanh", "exp", "sigmoid", "neg", "add", "mul"))
        made.append(build.op(name, [made[-1], other] if name in ("add", "mul") else [made[-1]]))
    back = build.op("neg", [made[-1]])
    for value in reversed(made[1:-1]):
        back = build.op(chosen.choice(("mul", "sub")), [back, value])
        if chosen.random() < 0.3:
            back = build.op("tanh", [back])
    module.main.returns = [back]
    PassManager.parse("materialize-returns,decompose").run(module)
    return module


def planned(module: Module, percent: int, options: str) -> Module | None:
    """The module under `percent` of its arena; None if that budget is refused, and all left as it was."""
    changed = copy.deepcopy(module)
    PassManager.parse("reorder{work=1000000}").run(changed)
    budget = planned_arena(changed.main) * percent // 100
    changed = copy.deepcopy(module)
    pipeline = f"offload{{budget={budget} work=1000000 least-copy=1 {options}}},in-place,assign-addresses"
    try:
        PassManager.parse(pipeline).run(changed)
    except BudgetError:
        assert str(changed) == str(module)
        return None
    assert arena_bytes(changed.main) <= budget
    return changed


def test_budgets_are_kept_and_bits_stay(link: Path) -> None:
    copied = 0
    for seed in range(40):
        module = step(seed)
        changed = planned(module, 55 + seed % 4 * 12, f"link={link}")
        if changed is None:
            continue
        copied += has_copies(changed.main)
        inputs = inputs_of(module, seed)
        expected = evaluate(module, inputs)
        for name, value in evaluate_in_arena(changed, inputs).items():
            assert value.tobytes() == expected[name].tobytes(), (seed, name)
    assert copied > 5


@pytest.mark.parametrize("policy", get_args(PolicyName))
def test_policies_keep_bits_and_budgets(policy: str, link: Path) -> None:
    copied = 0
    for seed in range(12):
        module = step(seed)
        changed = planned(module, 70 + seed % 3 * 15, f"link={link} policy={policy}")
        if changed is None:
            continue
        copied += has_copies(changed.main)
        inputs = inputs_of(module, seed)
        expected = evaluate(module, inputs)
        for name, value in evaluate_in_arena(changed, inputs).items():
            assert value.tobytes() == expected[name].tobytes(), (seed, name)
    assert copied > 2 or policy in ("superneurons", "vdnn-conv")  # There are no convolutions.


def test_host_budgets_are_kept(link: Path) -> None:
    fewer = 0
    for seed in range(12):
        module = step(seed)
        free, none = planned(module, 70, f"link={link}"), planned(module, 70, f"link={link} host-budget=0")
        assert none is None or not has_copies(none.main)
        if free is not None and has_copies(free.main):
            most = space_bytes(free.main, "host") // 2
            some = planned(module, 70, f"link={link} host-budget={most}")
            assert some is None or space_bytes(some.main, "host") <= most
            fewer += some is not None and has_copies(some.main)
    assert fewer > 1


def test_a_lower_budget_never_gives_a_larger_arena(link: Path) -> None:
    copied = 0
    for seed in range(60, 72):
        module, last = step(seed), None
        for percent in range(97, 50, -6):
            changed = planned(module, percent, f"link={link}")
            if changed is None:
                break
            copied += has_copies(changed.main)
            taken = arena_bytes(changed.main)
            assert last is None or taken <= last, (seed, percent)
            last = taken
    assert copied > 20


@given(modules(), st.booleans())
def test_functions_take_what_their_schedules_say(module: Module, fused: bool) -> None:
    PassManager.parse("materialize-returns,decompose" + (",fuse,select-kernels" if fused else "")).run(module)
    graph = RecomputeGraph.of(module.main, lambda op: 1000)
    problem = OffloadProblem(graph.problem, graph.movable(1), Lanes(QUICK, QUICK))
    before = Snapshot.of(module, module.main)
    for plan in offload_ladder(problem, 0):
        assert measure_schedule(problem, plan.items) == plan
        rewrite(graph, plan.items)
        verify(module)
        names = [op.name for op in module.main.ops]
        for step, name in ((Step.OUT_START, "offload_start"), (Step.IN_DONE, "prefetch_done")):
            assert names.count(name) == sum(item is step for item, _ in plan.items)
        assert planned_arena(module.main) >= 0
        before.restore()


def quickest(plans: Sequence[Schedule], budget: int) -> Schedule | None:
    fitting = [plan for plan in plans if plan.peak <= budget]
    return min(fitting, key=lambda plan: (plan.added, plan.bytes_in, plan.peak), default=None)


@settings(max_examples=20)
@given(modules(), st.sampled_from([(10, 1 << 20, 1024), (500, 1 << 24, 600), (0, 1 << 22, 512)]))
def test_both_are_never_slower_than_either_and_budgets_never_cross(module: Module, rates: tuple[int, int, int]) -> None:
    """Nor does a lower budget take less time, or a higher peak, than a higher one; without a link plans are those of recomputation."""
    PassManager.parse("materialize-returns,decompose").run(module)
    graph = RecomputeGraph.of(module.main, lambda op: 1000)
    ops, movable, lanes = graph.problem, graph.movable(1), Lanes(Lane(*rates), QUICK)
    plans = offload_ladder(OffloadProblem(ops, movable, lanes), 0)
    alone = [Schedule.of_runs(ops, plan) for plan in recompute_ladder(ops, 0)]
    once = replace(ops, once=[True] * len(ops.costs), in_order=True)
    copied = offload_ladder(OffloadProblem(once, movable, lanes), 0)
    assert [plan for plan in plans if not plan.bytes_in] == alone
    assert offload_ladder(OffloadProblem(ops, [False] * len(movable), lanes), 0) == alone
    last = None
    for budget in sorted({plan.peak for plan in (*plans, *copied)}):
        best = quickest(plans, budget)
        for others in (alone, copied):
            other = quickest(others, budget)
            assert other is None or (best is not None and best.added <= other.added)
        assert best is not None
        assert last is None or (best.peak >= last.peak and best.added <= last.added)
        last = best


@given(modules(), st.sampled_from([(10, 1 << 20, 1024), (500, 1 << 24, 600), (0, 1 << 22, 512)]))
def test_reports_find_the_schedule_in_the_function(module: Module, rates: tuple[int, int, int]) -> None:
    """Its time to the picosecond, its copies, and what is recomputed."""
    PassManager.parse("materialize-returns,decompose").run(module)
    graph = RecomputeGraph.of(module.main, lambda op: 1000, alignment=1)
    lanes = Lanes(Lane(*rates), QUICK)
    problem = OffloadProblem(graph.problem, graph.movable(1), lanes)
    before = Snapshot.of(module, module.main)

    def cost(op: Op) -> int:
        return 0 if op.name == "constant" or is_whole_view(op) else 1000

    for plan in offload_ladder(problem, 0):
        rewrite(graph, plan.items)
        time = timeline(module.main, cost, lanes)
        assert (time.makespan, time.computing) == (plan.makespan, plan.computing)
        assert sum(copy.bytes for copy in time.copies if copy.way == "in") <= plan.bytes_in
        assert all(time.idle().within(copy.begin, copy.end) <= copy.duration for copy in time.copies)
        lives = {life.value: life for life in lives_of(module.main)}
        counts = Counter(plan.items)
        for number, value in enumerate(graph.values):
            assert len(lives[value].leaves) == counts[Step.OUT_START, number]
            assert len(lives[value].comes) == counts[Step.IN_START, number]
        made = sum((counts[Step.RUN, n] - 1) * len(op.results) for n, unit in enumerate(graph.units) for op in unit)
        assert sum(len(life.runs) for life in lives.values()) == made
        decided = decisions_of(module.main, time, cost, lanes, {}, 1, 64)
        moved = {each.value for each in decided if each.decision.startswith("offloaded")}
        assert moved == {value.name for n, value in enumerate(graph.values) if counts[Step.IN_START, n]}
        before.restore()
