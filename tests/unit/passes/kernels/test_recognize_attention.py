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
from memc.ir.text.parser import parse
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


PLAIN = """
func @main(%q: f32[2,4,16,16] {role = input}, %k: f32[2,4,16,16] {role = input}, %v: f32[2,4,16,16] {role = input},
           %m: f32[16,16] {role = input}) -> RESULTS {
  %half = constant() {value = dense<f32[]>[0.5]} : f32[]
  %row = constant() {value = dense<f32[1]>[0.25]} : f32[1]
  %z = mul(%q, %half) : f32[2,4,16,16]
  %s = matmul(%z, %k) {transpose_a = false, transpose_b = true} : f32[2,4,16,16]
  %t = mul(%s, %half) : f32[2,4,16,16]
  %u = add(%t, %m) : f32[2,4,16,16]
  %w = softmax(%u) {axis = 3} : f32[2,4,16,16]
  %y = matmul(%w, %v) {transpose_a = false, transpose_b = false} : f32[2,4,16,16]
  return %y
}
"""


def recognized(text: str, second: str = "") -> Module:
    """The module after the pass, which computes what it did before. `second`: a value that is returned, too."""
    text = text.replace("RESULTS", "(f32[2,4,16,16], f32[2,4,16,16])" if second else "f32[2,4,16,16]")
    text = text.replace("return %y", f"return %y, {second}") if second else text
    plain, module = parse(text), parse(text)
    PassManager.parse("recognize-attention{target=cuda}").run(module)
    rng = np.random.default_rng(3)
    feeds = {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in plain.main.params}
    for found, expected in zip(evaluate(module, feeds).values(), evaluate(plain, feeds).values(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return module


@pytest.mark.parametrize(
    ("old", "new", "second", "scale"),
    [
        ("", "", "", 0.25),
        ("", "", "%z", 0.25),  # The scale of the queries, which something else reads too.
        ("mul(%s, %half)", "div(%s, %half)", "", 1.0),
        ("mul(%s, %half)", "mul(%half, %s)", "", 0.25),
        ("add(%t, %m)", "add(%m, %t)", "", 0.25),
        ("mul(%q, %half)", "mul(%q, %row)", "", 0.125),  # One number, of whatever shape.
        ("mul(%q, %half)", "mul(%q, %m)", "", 0.5),  # No number: queries of their own.
    ],
)
def test_scales(old: str, new: str, second: str, scale: float) -> None:
    found = [op for op in recognized(PLAIN.replace(old, new), second).main.ops if op.name == "attention"]
    assert [op.attrs["scale"] for op in found] == [scale]


@pytest.mark.parametrize(
    ("old", "new", "second"),
    [
        ("{axis = 3}", "{axis = 2}", ""),
        ("(%w, %v) {transpose_a = false", "(%w, %v) {transpose_a = true", ""),
        ("(%z, %k) {transpose_a = false", "(%z, %k) {transpose_a = true", ""),
        ("", "", "%w"),
        ("", "", "%u"),
        ("", "", "%t"),
        ("", "", "%s"),
        ("add(%t, %m)", "sub(%t, %m)", ""),
        ("softmax(%u) {axis", "log_softmax(%u) {axis", ""),
    ],
)
def test_what_is_no_attention_or_is_needed_besides(old: str, new: str, second: str) -> None:
    names = [op.name for op in recognized(PLAIN.replace(old, new), second).main.ops]
    assert "attention" not in names
