# SPDX-License-Identifier: Apache-2.0
"""Kernels whose innermost axis repeats values that an activation binds to variables."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import memc
from memc.ir.evaluate import evaluate
from memc.ir.text.parser import parse

REPEATED = {
    "gather": ("3,1", "%1 = gather(%a0, %a1) {{axis = 1}} : {t}[3,8]"),
    "pad": ("3,1", '%1 = pad(%a0) {{low = [0, 3], high = [0, 4], mode = "edge", value = 0.0}} : {t}[3,8]'),
    "broadcast": ("3,1", "%1 = broadcast(%a0) {{shape = [3, 8]}} : {t}[3,8]"),
    "resize": ("3,1", "%1 = resize_nearest(%a0, %a1) {{axes = [1]}} : {t}[3,8]"),
}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("activation", ["silu(%1)", "softplus(%1)", "elu(%1) {alpha = 1.0}", "tanh(%1)"])
@pytest.mark.parametrize("repeated", REPEATED)
def test_an_activation_of_repeated_values(
    caplog: pytest.LogCaptureFixture, repeated: str, activation: str, dtype: str
) -> None:
    """It compiles as it is fused, without a plainer kernel in its place, and its results are right."""
    shape, first = REPEATED[repeated]
    text = f"""func @main(%x: {dtype}[{shape}] {{role = input}}, %i: i32[8] {{role = input}}) -> ({dtype}[3,8]) {{
  %y = fused(%x, %i) region(%a0: {dtype}[{shape}], %a1: i32[8]) {{
    {first.format(t=dtype)}
    %2 = {activation} : {dtype}[3,8]
    yield %2
  }} : {dtype}[3,8]
  return %y
}}"""
    with caplog.at_level(logging.WARNING, "memc"):
        done = memc.compile(parse(text, "test"), kernels="generated")
    assert not caplog.records
    rng = np.random.default_rng(1)
    inputs = {"x": rng.normal(size=(3, 1)).astype(f"float{dtype[1:]}"), "i": np.zeros(8, np.int32)}
    (wanted,) = evaluate(parse(text, "test"), inputs).values()
    (found,) = done.load().run_numpy(inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == "f32" else 2e-3)
