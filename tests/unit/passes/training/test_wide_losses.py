# SPDX-License-Identifier: Apache-2.0
"""The loss of scores that a model casts: halves made f32 are read as they were, others as they are."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.core import Role
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager

LABELS = np.array([0, 5, 1, 2, 3, 4, 0, 1])
X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def cast_scores(half: str, to: str) -> Module:
    text = f"""\
func @main(%x: f32[8,4] {{role = input}}, %w: f32[4,6] {{role = weight}}) -> ({to}[8,6] {{name = "logits"}}) {{
  %p = matmul(%x, %w) {{transpose_a = false, transpose_b = false}} : f32[8,6]
  %z = cast(%p) {{to = {half}}} : {half}[8,6]
  %y = cast(%z) {{to = {to}}} : {to}[8,6]
  return %y
}}
"""
    module = parse(text, "cast.memir")
    for p in module.main.params_of(Role.WEIGHT):
        module.weights[p.name] = np.random.default_rng(1).standard_normal(p.type.shape).astype(np.float32)
    return module


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    "half, to, read, made",
    [("f16", "f32", "f16", "f32"), ("f16", "f64", "f64", "f64"), ("bf16", "f64", "f64", "f64"), ("bf16", "f16", "f16", "f32")],
)  # fmt: skip
def test_scores_that_are_cast(half: str, to: str, read: str, made: str, accumulate: int) -> None:
    module = cast_scores(half, to)
    rounded = evaluate(module, {"x": X})["logits"].astype(np.float64)
    PassManager.parse(f"build-gradient{{optimizer=none accumulate={accumulate}}}").run(module)
    reads = {op.operands[0].type.dtype.value for op in module.main.ops if op.name == "softmax_cross_entropy"}
    assert reads == {read}
    inputs = {"x": np.tile(X, (accumulate, 1)), "labels": np.tile(LABELS, accumulate)}
    loss = evaluate(module, inputs)["loss"]
    assert loss.dtype == {"f32": np.float32, "f64": np.float64}[made]
    wanted = (np.log(np.exp(rounded).sum(axis=1)) - rounded[np.arange(8), LABELS]).mean()
    np.testing.assert_allclose(loss, wanted, rtol=1e-12 if made == "f64" else 1e-5)
