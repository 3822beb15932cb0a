# SPDX-License-Identifier: Apache-2.0
"""Attention that is recognized computes the same, takes no more memory, and is there only where a kernel is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value, fresh_names
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.passes.kernels import recognize_attention
from memc.passes.manager import PassManager

HEADS = 4


def model(axis: int, scaled: str = "scores", mask: bool = False) -> Module:
    """One layer on positions at `axis` of three, heads and batch around them; the scale at the scores, at q, or at q and k."""
    shape = [2, HEADS, 8]
    shape.insert(axis, 16)
    names = ["x", "y", "z"]
    params = [Value(n, TensorType(DType.F32, tuple(shape)), role=Role.INPUT) for n in names]
    if mask:
        params.append(Value("m", TensorType(DType.F32, (2, 1, 16, 16)), role=Role.INPUT))
    function = Function(list(params))
    module = Module([function])
    b = IRBuilder(module, function, function.ops, fresh_names([p.name for p in params]))
    perm = (*(d for d in range(3) if d != axis), axis, 3)
    q, k, v = (b.op("transpose", [p], perm=perm) for p in params[:3])
    k = b.op("transpose", [k], perm=(0, 1, 3, 2))
    factor = b.scalar(0.5, DType.F32)
    if scaled != "scores":
        q = b.op("mul", [q, factor])
    if scaled == "both":
        k = b.op("mul", [factor, k])
    scores = b.op("matmul", [q, k], transpose_a=False, transpose_b=False)
    if scaled == "scores":
        scores = b.op("mul", [scores, factor])
    if mask:
        scores = b.op("add", [scores, params[3]])
    weights = b.op("softmax", [scores], axis=3)
    found = b.op("matmul", [weights, v], transpose_a=False, transpose_b=False)
    function.returns = [b.op("transpose", [found], perm=tuple(perm.index(d) for d in range(4)))]
    return module


CASES = list(itertools.product(range(3), ("scores", "q", "both"), (False, True)))


@pytest.mark.parametrize(("axis", "scaled", "mask"), CASES)
def test_the_same_values(axis: int, scaled: str, mask: bool) -> None:
    rng = np.random.default_rng(axis)
    feeds = {
        p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in model(axis, scaled, mask).main.params
    }
    (expected,) = evaluate(model(axis, scaled, mask), feeds).values()
    module = model(axis, scaled, mask)
    PassManager.parse("canonicalize,recognize-attention{target=cuda}").run(module)
    assert [op.name for op in module.main.ops] == ["attention"]
    assert module.main.ops[0].attrs["axis"] == axis
    (found,) = evaluate(module, feeds).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("target", "kernels", "there"), [("cuda", "auto", 1), ("cuda", "generated", 0), ("llvm", "auto", 0)]
)
def test_only_where_a_kernel_is(target: str, kernels: str, there: int) -> None:
    done = memc.compile(model(1), target=target, kernels=kernels, plan_only=True)
    assert [op.name for op in done.module.main.ops].count("attention") == there


def test_less_memory() -> None:
    arenas = [
        memc.compile(model(1), target="cuda", plan_only=True, disabled_passes=names).report.to_dict()["arena_bytes"]
        for names in ([], ["recognize-attention"])
    ]
    assert arenas[0] < arenas[1]


def test_taken_back_where_the_peak_would_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([100, 101])
    monkeypatch.setattr(recognize_attention, "planned_peak", lambda *_: next(peaks))
    module, before = model(1), [op.name for op in model(1).main.ops]
    PassManager.parse("recognize-attention{target=cuda}").run(module)
    assert [op.name for op in module.main.ops] == before


def test_training_keeps_its_scores() -> None:
    """The backward pass reads the weights of the values."""
    module = model(1)
    for name in ("x", "y", "z"):
        next(p for p in module.main.params if p.name == name).role = Role.WEIGHT
        module.weights[name] = np.zeros((2, 16, HEADS, 8), np.float32)
    done = memc.compile(
        module, target="cuda", plan_only=True, pass_pipeline="build-gradient{loss=mse},recognize-attention"
    )
    assert "attention" not in [op.name for op in done.module.main.ops]
