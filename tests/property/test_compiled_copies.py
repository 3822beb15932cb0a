# SPDX-License-Identifier: Apache-2.0
"""Random copies between spaces in compiled code: the bits of the code without them, whenever they run."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import memc
from memc.passes.manager import PassManager

from .copies import insert_copies
from .graphs import SeededGraph, fill, inputs_of

PIPELINE = "select-kernels{target=none},in-place,assign-addresses"


@pytest.mark.parametrize("seed", [3, 8, 11, 20])
def test_compiled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = fill(SeededGraph(seed), 12)
    PassManager.parse("materialize-returns,decompose").run(module)
    inputs = inputs_of(module, seed)
    plain = memc.compile(copy.deepcopy(module), pass_pipeline=PIPELINE).load().run_numpy(inputs)
    assert insert_copies(module, seed, 0.8) > 1
    executable = memc.compile(module, pass_pipeline=PIPELINE).load()
    for times in ("thread", "at-start", "at-done", "random:1", "random:2"):
        monkeypatch.setenv("MEMC_COPIES", times)
        found = executable.run_numpy(inputs)
        assert found.keys() == plain.keys()
        for name, value in plain.items():
            np.testing.assert_array_equal(found[name], value, strict=True)
