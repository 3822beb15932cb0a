# SPDX-License-Identifier: Apache-2.0
"""Random modules in other orders: what the dependencies allow gives the same results, and `reorder` never costs memory."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import peak
from memc.ir.module import Module
from memc.ir.verify.memory_plan import check_plan
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager
from memc.passes.order.bound import order_bound
from memc.passes.order.problem import arranged, order_problem
from memc.passes.placement.alias_plan import plan_aliases, planned_peak
from memc.solvers.order import OrderProblem, order_peak

from .graphs import inputs_of, modules


def random_order(problem: OrderProblem, seed: int) -> list[int]:
    """Some order that keeps the dependencies."""
    rng = random.Random(seed)
    waiting = [set(after) for after in problem.after]
    order: list[int] = []
    while len(order) < len(waiting):
        ready = [op for op, after in enumerate(waiting) if not after and op not in order]
        order.append(rng.choice(ready))
        for after in waiting:
            after.discard(order[-1])
    return order


def same_results(module: Module, reference: Module) -> None:
    inputs = inputs_of(reference)
    expected = evaluate(reference, inputs)
    for name, value in evaluate_in_arena(module, inputs).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-4)


@given(modules(), st.integers(0, 99), st.booleans())
def test_any_order_that_keeps_the_dependencies(module: Module, seed: int, in_place: bool) -> None:
    """Also with aliases, some of which the next order could not have."""
    changed = copy.deepcopy(module)
    PassManager.parse("materialize-returns,decompose" + (",in-place" if in_place else "")).run(changed)
    function = changed.main
    problem = order_problem(function)
    order = random_order(problem, seed)
    function.ops = arranged(function.ops, order)
    verify(changed)
    assert order_peak(problem, order) == peak(function)
    PassManager.parse("assign-addresses").run(changed)
    same_results(changed, module)


@given(modules(), st.integers(0, 99))
def test_no_order_is_below_the_bound(module: Module, seed: int) -> None:
    PassManager.parse("materialize-returns,decompose").run(module)
    function = module.main
    bound = order_bound(function)
    for number in range(3):
        assert bound <= plan_aliases(function).peak
        function.ops = arranged(function.ops, random_order(order_problem(function), seed + number))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("solver", ["auto", "list", "ilp"])
@given(module=modules())
def test_never_worse(solver: str, in_place: bool, module: Module) -> None:
    changed = copy.deepcopy(module)
    PassManager.parse("materialize-returns,decompose" + (",in-place" if in_place else "")).run(changed)
    before = planned_peak(changed.main, refine=True)
    PassManager.parse(f"reorder{{solver={solver} beam-width=4}}").run(changed)
    assert planned_peak(changed.main, refine=True) <= before
    PassManager.parse("in-place,assign-addresses").run(changed)
    assert peak(changed.main) <= before
    check_plan(changed, 64)
    same_results(changed, module)
