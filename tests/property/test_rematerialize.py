# SPDX-License-Identifier: Apache-2.0
"""Random modules under random budgets: the budget is kept, or named unreachable, and results keep their bits."""

from __future__ import annotations

import copy

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from memc.ir.errors import BudgetError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot, is_unplaced
from memc.passes.manager import PassManager
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.problem import RecomputeGraph
from memc.passes.recompute.rewrite import rewrite
from memc.solvers.offload import Schedule
from memc.solvers.recompute import measure_sequence, recompute_ladder

from .foreign_graphs import foreign_modules, run_in_arena, run_plainly
from .graphs import inputs_of, modules


def kept(module: Module, percent: int, then: str) -> Module | None:
    """The module under `percent` of its arena, planned by `then`; None if that budget is refused, and all left as it was."""
    changed = copy.deepcopy(module)
    PassManager.parse("reorder{work=1000000}").run(changed)
    budget = planned_arena(changed.main) * percent // 100
    changed = copy.deepcopy(module)
    try:
        PassManager.parse(f"rematerialize{{budget={budget} work=1000000}},{then}").run(changed)
    except BudgetError:
        assert str(changed) == str(module)
        return None
    assert arena_bytes(changed.main) <= budget
    return changed


def keeps_budget_and_bits(module: Module, percent: int, then: str) -> None:
    changed = kept(module, percent, then)
    if changed is None:
        return
    inputs = inputs_of(module)
    expected = evaluate(module, inputs)
    for name, value in evaluate_in_arena(changed, inputs).items():
        np.testing.assert_array_equal(value, expected[name])


@given(modules(), st.integers(20, 100), st.booleans())
def test_budgets_are_kept_and_bits_stay(module: Module, percent: int, fused: bool) -> None:
    PassManager.parse("materialize-returns,decompose" + (",fuse,select-kernels" if fused else "")).run(module)
    keeps_budget_and_bits(module, percent, "in-place,assign-addresses")


@given(modules(), st.booleans())
def test_functions_take_what_their_plans_say(module: Module, fused: bool) -> None:
    """What is written back reads the latest copy of everything, as the sequence does."""
    PassManager.parse("materialize-returns,decompose" + (",fuse,select-kernels" if fused else "")).run(module)
    function = module.main
    graph = RecomputeGraph.of(function, lambda op: 1)
    before = Snapshot.of(module, function)
    for plan in recompute_ladder(graph.problem, 0):
        rewrite(graph, Schedule.of_runs(graph.problem, plan).items)
        again = RecomputeGraph.of(function, lambda op: 1).problem
        assert len(again.costs) == len(plan.sequence)
        assert measure_sequence(again, range(len(again.costs))).peak == plan.peak
        before.restore()


@given(modules(), st.integers(20, 100))
def test_aliases_that_there_are_stay(module: Module, percent: int) -> None:
    PassManager.parse("materialize-returns,decompose,in-place").run(module)
    assume(not is_unplaced(module.main))  # Where there are none, they are planned for another order.
    keeps_budget_and_bits(module, percent, "assign-addresses")


@given(foreign_modules(), st.integers(50, 100))
def test_foreign_ops_that_overwrite(module: Module, percent: int) -> None:
    expected = run_plainly(module)
    changed = kept(module, percent, "assign-addresses")
    if changed is not None:
        assert run_in_arena(changed, arena_bytes(changed.main)) == expected
