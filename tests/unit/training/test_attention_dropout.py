# SPDX-License-Identifier: Apache-2.0
"""Attention that drops weights by itself, in training steps: it draws as dropout does."""

from __future__ import annotations

import numpy as np
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Array, Attr, Function, Role, Value
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.measure.verification import random_results
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.step_builder import DRAWS

RNG = np.random.default_rng(4)
SHAPE = (2, 12, 4)
X, T = (RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
W = RNG.standard_normal((2, 4, 4)).astype(np.float32)
DROPPED: dict[str, Attr] = {"ratio": 0.5, "stream": 1}


def model(dropped: dict[str, Attr], masked: bool = False) -> Module:
    """Attention of x w to x, maybe with a mask, and a seed that is a constant."""
    x, w = Value("x", TensorType(DType.F32, SHAPE), role=Role.INPUT), Value("w", TensorType(DType.F32, W.shape))
    w.role = Role.WEIGHT
    function = Function([x, w])
    module = Module([function], weights={"w": W})
    b = IRBuilder(module, function, function.ops)
    q = b.op("matmul", [x, w], transpose_a=False, transpose_b=False)
    mask = [b.constant(np.zeros((12, 12), np.float32))] if masked else []
    seed = [b.constant(np.array(3, np.int64))] if dropped else []
    found = b.multi("attention_training", [q, x, x, *mask, *seed], axis=1, scale=0.5, **dropped)
    function.returns, function.result_names = [found.results[0]], ["y"]
    return module


def gradients(module: Module, steps: int, **options: bool) -> list[Array]:
    """Those in w of some steps that update nothing."""
    step = memc.compile(module, train=BuildGradient(loss="mse", optimizer="none", **options)).load()
    return [step(x=X, labels=T)["w.grad"] for _ in range(steps)]


@pytest.mark.parametrize("masked", [False, True])
def test_each_step_drops_others(masked: bool) -> None:
    first, second = gradients(model(DROPPED, masked), 2)
    assert not np.allclose(first, second)
    again, _ = gradients(model(DROPPED, masked), 2)
    np.testing.assert_array_equal(first, again)


def test_the_counter_of_dropout_is_what_it_draws_from() -> None:
    module = model(DROPPED)
    assert random_results(module) == {"y"} and random_results(model({})) == set()
    BuildGradient(loss="mse").apply(module)
    for name in ("attention_training", "attention_grad"):
        (op,) = (op for op in module.main.ops if op.name == name)
        assert op.operands[3].name == DRAWS


@pytest.mark.parametrize("masked", [False, True])
def test_without_dropout_nothing_is_dropped(masked: bool) -> None:
    (wanted,) = gradients(model({}, masked), 1)
    for found in gradients(model(DROPPED, masked), 2, dropout=False):
        np.testing.assert_array_equal(found, wanted)
