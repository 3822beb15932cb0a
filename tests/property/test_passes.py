# SPDX-License-Identifier: Apache-2.0
"""Random modules through the levels: right values in the poisoned arena, and never more memory at a higher level."""

from __future__ import annotations

import copy

import numpy as np
from hypothesis import given

from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes, peak
from memc.ir.module import Module
from memc.ir.verify.memory_plan import check_plan
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline

from .graphs import inputs_of, modules


@given(modules())
def test_levels(module: Module) -> None:
    inputs = inputs_of(module)
    expected = evaluate(module, inputs)
    arenas = []
    for level in (0, 1, 2):
        planned = copy.deepcopy(module)
        PassManager.parse(pipeline(level)).run(planned)
        check_plan(planned, 64, arena_bytes(planned.main))
        for name, value in evaluate_in_arena(planned, inputs).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-4)
        arenas.append(arena_bytes(planned.main))
        assert arenas[-1] >= peak(planned.main)
    assert arenas[2] <= arenas[1] <= arenas[0]
