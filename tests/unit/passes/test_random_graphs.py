# SPDX-License-Identifier: Apache-2.0
"""Random graphs: planned evaluation equals plain evaluation, and higher levels never need more memory."""

import numpy as np
import pytest

from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes, peak, unoptimized_bytes
from memc.ir.target import Target
from memc.ir.verify.memory_plan import check_plan
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.passes.placement.alias_plan import plan_aliases
from memc.passes.placement.in_place import make_in_place

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_agree_and_never_need_more(random_module, seed):
    plain, inputs = random_module(seed)
    expected = evaluate(plain, inputs)
    arenas = []
    for level in (0, 1, 2):
        module, _ = random_module(seed)
        PassManager.parse(pipeline(level)).run(module)
        check_plan(module, 64, arena_bytes(module.main))
        found = evaluate_in_arena(module, inputs)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
        assert arena_bytes(module.main) >= peak(module.main)
        arenas.append(arena_bytes(module.main))
        if level == 0:
            assert arenas[0] == unoptimized_bytes(module.main)
    assert arenas[2] <= arenas[1] <= arenas[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_planned_live_sets_are_those_of_the_aliased_function(random_module, seed):
    module, _ = random_module(seed, ops=25)
    PassManager.parse("materialize-returns,decompose").run(module)
    before = peak(module.main)
    planned = plan_aliases(module.main).peak
    make_in_place(module.main)
    assert peak(module.main) == planned <= before


@pytest.mark.parametrize("alignment", [1, 256])
@pytest.mark.parametrize("seed", range(15))
def test_other_alignments(random_module, seed, alignment):
    plain, inputs = random_module(seed)
    expected = evaluate(plain, inputs)
    module, _ = random_module(seed)
    module.target = Target.of("llvm", alignment=alignment)
    PassManager.parse(pipeline(2)).run(module)
    check_plan(module, alignment, arena_bytes(module.main, alignment))
    for name, value in evaluate_in_arena(module, inputs).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_seeds(random_module, block):
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        test_levels_agree_and_never_need_more(random_module, seed)
