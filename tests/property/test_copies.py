# SPDX-License-Identifier: Apache-2.0
"""Random copies between spaces: plans of functions with them are right, and give the bits of those without."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.core import Array
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import lifetimes, lower_bound, space_bytes
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.plan import check_plan
from memc.passes.manager import PassManager

from .copies import insert_copies
from .graphs import SeededGraph, fill, inputs_of

PLANS = (
    "in-place,assign-addresses",
    "in-place,assign-addresses{solver=best-fit}",
    "share,assign-addresses{solver=sequential}",
    "assign-addresses{solver=none}",
)


def with_copies(seed: int) -> tuple[Module, dict[str, Array], dict[str, Array], int]:
    """A random module with copies, inputs for it, what it returned without them, and how many there are."""
    module = fill(SeededGraph(seed), 16)
    PassManager.parse("materialize-returns,decompose").run(module)
    inputs = inputs_of(module, seed)
    expected = evaluate(module, inputs)
    return module, inputs, expected, insert_copies(module, seed)


def same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("plan", PLANS)
def test_plans_give_the_bits_of_the_function_without_copies(plan: str) -> None:
    total = 0
    for seed in range(60):
        module, inputs, expected, count = with_copies(seed)
        total += count
        same(evaluate(module, inputs), expected)
        PassManager.parse(plan).run(module)
        check_plan(module, 64)
        same(evaluate_in_arena(module, inputs), expected)
        again = parse(str(module))
        assert str(again) == str(module)
        bound = lower_bound(lifetimes(module.main, "host"))
        assert bound <= space_bytes(module.main, "host") and (bound > 0) == (count > 0)
    assert total > 100


def test_levels_keep_copies() -> None:
    from memc.passes.pipelines import pipeline

    for seed in range(20):
        for level in (0, 1, 2):
            module, inputs, expected, count = with_copies(seed)
            starts = [op.name for op in module.main.ops if op.name.endswith("_start")]
            PassManager.parse(pipeline(level)).run(module)
            assert [op.name for op in module.main.ops if op.name.endswith("_start")] == starts
            for name, value in evaluate_in_arena(module, inputs).items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)
