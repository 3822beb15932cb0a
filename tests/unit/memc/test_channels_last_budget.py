# SPDX-License-Identifier: Apache-2.0
"""What a memory budget makes of convolutions with channels last, whose workspaces and filled channels take some bytes more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.errors import BudgetError
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.passes.layout.channels_last import has_channels_last


def net(shared: bool) -> Module:
    """Five convolutions; with `shared`, a weight is also read by one that has nothing to gain."""
    rng = np.random.default_rng(2)
    x = Value("x", TensorType(DType.F32, (16, 3, 32, 32)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)

    def weight(*shape: int) -> Value:
        return b.constant((rng.normal(size=shape) / 30).astype(np.float32))

    def conv(h: Value, w: Value, pad: int) -> Value:
        return b.op("conv", [h, w, weight(64)], pads=(pad,) * 4, strides=(1, 1), dilations=(1, 1), group=1)

    h = b.op("relu", [conv(x, weight(64, 3, 7, 7), 3)])
    first = weight(64, 64, 3, 3)
    for _ in range(4):
        h = b.op("relu", [conv(h, first if shared else weight(64, 64, 3, 3), 1)])
    if shared:
        h = b.op("softmax", [h], axis=1)
        part = b.op("slice", [h], starts=(0, 0, 0, 0), stops=(16, 64, 5, 5), steps=(1, 1, 1, 1))
        h = b.op("softmax", [conv(part, first, 1)], axis=1)
    function.returns = [b.op("reduce_mean", [h], axes=(2, 3), keepdims=False)]
    function.result_names = ["y"]
    return module


def planned(shared: bool = False, **options: Any) -> memc.Compilation:
    return memc.compile(net(shared), target="cuda", arch="sm_90", precision="tf32", plan_only=True, **options)


def test_a_budget_that_is_met_without_channels_last_is_met() -> None:
    last, first = planned(), planned(disabled_passes=["channels-last"])
    assert has_channels_last(last.module) and not has_channels_last(first.module)
    assert last.report.peak_bytes > first.report.peak_bytes  # Else there would be nothing to see.
    within = planned(memory_budget=first.report.peak_bytes)
    assert within.report.peak_bytes == first.report.peak_bytes and not has_channels_last(within.module)
    assert has_channels_last(planned(memory_budget=last.report.peak_bytes).module)


def test_a_budget_that_neither_meets_is_an_error() -> None:
    with pytest.raises(BudgetError, match="least reachable peak"):
        planned(memory_budget=1 << 20)


def test_a_large_weight_is_not_stored_in_both_layouts() -> None:
    assert (
        planned(shared=True).report.weights_bytes
        == planned(True, disabled_passes=["channels-last"]).report.weights_bytes
    )
