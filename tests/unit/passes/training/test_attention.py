# SPDX-License-Identifier: Apache-2.0
"""Training steps with attention as one op: the forms that exporters write, the same gradients, and never a higher peak."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Role, Value, fresh_names
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.step_builder import Training

BATCH, TOKENS, HEADS, COLUMNS = 2, 24, 4, 4
WIDTH = HEADS * COLUMNS
LOWEST = float(np.finfo(np.float32).min)


class Layer:
    """One layer of attention being written, with weights drawn at random."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(4)
        self.function = Function([])
        self.module = Module([self.function])
        self.b = IRBuilder(self.module, self.function, self.function.ops, fresh_names([]))
        self.x = self.param("x", (BATCH, TOKENS, WIDTH), Role.INPUT)

    def param(self, name: str, shape: tuple[int, ...], role: Role, kind: DType = DType.F32) -> Value:
        value = Value(name, TensorType(kind, shape), role=role)
        self.function.params.append(value)
        return value

    def weight(self, name: str, array: Array) -> Value:
        self.module.weights[name] = np.asarray(array, np.float32)
        return self.param(name, array.shape, Role.WEIGHT)

    def project(self, x: Value, name: str, width: int = 0) -> Value:
        w = self.weight(name, self.rng.standard_normal((WIDTH, width or WIDTH)) / 2)
        return self.b.op("matmul", [x, w], transpose_a=False, transpose_b=False)

    def heads(self, x: Value, perm: tuple[int, ...] = (0, 2, 1, 3)) -> Value:
        x = self.b.op("reshape", [x], shape=(BATCH, TOKENS, x.type.shape[2] // COLUMNS, COLUMNS))
        return self.b.op("transpose", [x], perm=perm)

    def product(self, a: Value, b: Value) -> Value:
        return self.b.op("matmul", [a, b], transpose_a=False, transpose_b=False)

    def scaled(self, x: Value, number: float = 0.5) -> Value:
        return self.b.op("mul", [x, self.b.scalar(number, DType.F32)])

    def seen(self) -> Value:
        """Whether a key is no later than a query, written out as exporters do, for each of the batch."""
        row = self.b.op("iota", [], shape=(1, 1, TOKENS, 1), axis=2, dtype=DType.I64)
        column = self.b.op("iota", [], shape=(BATCH, 1, 1, TOKENS), axis=3, dtype=DType.I64)
        true = self.b.scalar(True, DType.BOOL)
        return self.b.op("logical_and", [true, self.b.op("less_equal", [column, row])])

    def causal(self, scores: Value) -> Value:
        zero, lowest = self.b.scalar(0.0, DType.F32), self.b.scalar(LOWEST, DType.F32)
        return self.b.op("add", [scores, self.b.op("select", [self.seen(), zero, lowest])])

    def finish(self, scores: Value, v: Value) -> Module:
        weights = self.b.op("softmax", [scores], axis=3)
        found = self.b.op("transpose", [self.product(weights, v)], perm=(0, 2, 1, 3))
        found = self.b.op("reshape", [found], shape=(BATCH, TOKENS, WIDTH))
        self.function.returns = [self.project(found, "wo")]
        self.function.result_names = ["y"]
        return self.module

    def qkv(self) -> tuple[Value, Value, Value]:
        q, v = (self.heads(self.project(self.x, name)) for name in ("wq", "wv"))
        return q, self.heads(self.project(self.x, "wk"), (0, 2, 3, 1)), v


def gpt2() -> Module:
    """A causal mask of constants, added; keys transposed at once."""
    layer = Layer()
    q, k, v = layer.qkv()
    return layer.finish(layer.causal(layer.scaled(layer.product(q, k))), v)


def bert() -> Module:
    """A mask of each key that is an input, added."""
    layer = Layer()
    q, k, v = layer.qkv()
    mask = layer.param("mask", (BATCH, 1, 1, TOKENS), Role.INPUT)
    return layer.finish(layer.b.op("add", [layer.scaled(layer.product(q, k)), mask]), v)


def padded() -> Module:
    """A mask of truths that is an input: -inf stands for the score of a hidden key."""
    layer = Layer()
    q, k, v = layer.qkv()
    hidden = layer.param("mask", (BATCH, 1, TOKENS, TOKENS), Role.INPUT, DType.BOOL)
    scores = layer.scaled(layer.product(q, k))
    return layer.finish(layer.b.op("select", [hidden, layer.b.scalar(-np.inf, DType.F32), scores]), v)


def chosen() -> Module:
    """A choice by a causal mask in place of a sum."""
    layer = Layer()
    q, k, v = layer.qkv()
    scores = layer.scaled(layer.product(q, k))
    return layer.finish(layer.b.op("select", [layer.seen(), scores, layer.b.scalar(LOWEST, DType.F32)]), v)


def vit() -> Module:
    """The scale at q and k; a mask of zeros, which does nothing."""
    layer = Layer()
    q, k, v = layer.qkv()
    scores = layer.product(layer.scaled(q, 0.7), layer.scaled(k, 0.7))
    zeros = layer.b.op("broadcast", [layer.b.scalar(0.0, DType.F32)], shape=(1, 1, TOKENS, TOKENS))
    return layer.finish(layer.b.op("add", [scores, zeros]), v)


def llama() -> Module:
    """Two heads of k and v, each repeated for two of q; a causal mask."""
    layer = Layer()

    def several(x: Value) -> Value:
        x = layer.b.op("reshape", [x], shape=(BATCH, 2, 1, TOKENS, COLUMNS))
        x = layer.b.op("broadcast", [x], shape=(BATCH, 2, 2, TOKENS, COLUMNS))
        return layer.b.op("reshape", [x], shape=(BATCH, HEADS, TOKENS, COLUMNS))

    q = layer.heads(layer.project(layer.x, "wq"))
    k, v = (several(layer.heads(layer.project(layer.x, name, WIDTH // 2))) for name in ("wk", "wv"))
    k = layer.b.op("transpose", [k], perm=(0, 1, 3, 2))
    return layer.finish(layer.causal(layer.scaled(layer.product(q, k))), v)


FORMS = {"gpt2": gpt2, "bert": bert, "padded": padded, "chosen": chosen, "vit": vit, "llama": llama}


def build(form: Callable[[], Module], attention: bool = True, **options: object) -> tuple[Module, Training]:
    module = form()
    how = BuildGradient(optimizer="none", loss="mse", attention=attention, **options)  # type: ignore[arg-type]
    return module, how.apply(module)


def feeds(module: Module) -> dict[str, Array]:
    rng = np.random.default_rng(9)
    found = {}
    for p in module.main.params:
        if p.role is not Role.INPUT:
            continue
        if p.type.dtype is DType.BOOL:
            found[p.name] = np.triu(np.ones(p.type.shape, bool), 3)
        elif p.name != "learning_rate":
            found[p.name] = rng.standard_normal(p.type.shape).astype(np.float32)
    return found


@pytest.mark.parametrize("name", FORMS)
def test_the_same_loss_and_gradients(name: str) -> None:
    """Of what exporters write, evaluated and compiled; no value has the scores' size."""
    one, training = build(FORMS[name])
    written_out, _ = build(FORMS[name], attention=False)
    assert training.attention is not None and training.attention.recognized == 1, training.attention
    given = feeds(one)
    expected = evaluate(written_out, given)
    assert set(expected) == {"loss", "wq.grad", "wk.grad", "wv.grad", "wo.grad"}
    compiled = memc.compile(one, pass_pipeline=None)
    found = compiled.load().run_numpy(given)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
    made = [v for op in compiled.module.main.ops for v in op.results if v.type.dtype.is_float]
    assert max(v.type.elements for v in made) < BATCH * HEADS * TOKENS * TOKENS


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("gpt2", {"axis": 1, "diagonal": 0, "scale": 0.5}),
        ("bert", {"axis": 1, "scale": 0.5}),
        ("chosen", {"axis": 1, "diagonal": 0, "scale": 0.5}),
        ("llama", {"axis": 1, "diagonal": 0, "scale": 0.5}),
    ],
)
def test_what_is_recognized(name: str, attrs: dict[str, float]) -> None:
    module, _ = build(FORMS[name])
    (op,) = [op for op in module.main.ops if op.name == "attention_training"]
    assert op.attrs == attrs
    assert len(op.operands) == (4 if name == "bert" else 3)
    assert [v.type.shape[2] for v in op.operands[:3]] == ([4, 2, 2] if name == "llama" else [4, 4, 4])


def trained_scale() -> Module:
    layer = Layer()
    q, k, v = layer.qkv()
    scores = layer.b.op("mul", [layer.product(q, k), layer.weight("scale", np.array(0.5))])
    return layer.finish(scores, v)


def trained_mask() -> Module:
    layer = Layer()
    q, k, v = layer.qkv()
    bias = layer.weight("bias", layer.rng.standard_normal((1, HEADS, TOKENS, TOKENS)))
    return layer.finish(layer.b.op("add", [layer.scaled(layer.product(q, k)), bias]), v)


def weights_returned() -> Module:
    layer = Layer()
    q, k, v = layer.qkv()
    module = layer.finish(layer.causal(layer.scaled(layer.product(q, k))), v)
    softmax = next(op for op in module.main.ops if op.name == "softmax")
    module.main.returns.append(softmax.result)
    module.main.result_names.append("weights")
    return module


def finite_number() -> Module:
    layer = Layer()
    q, k, v = layer.qkv()
    hidden = layer.param("mask", (BATCH, 1, TOKENS, TOKENS), Role.INPUT, DType.BOOL)
    scores = layer.scaled(layer.product(q, k))
    return layer.finish(layer.b.op("select", [hidden, layer.b.scalar(LOWEST, DType.F32), scores]), v)


def added_to_again() -> Module:
    layer = Layer()
    q, k, v = layer.qkv()
    scores = layer.causal(layer.scaled(layer.product(q, k)))
    return layer.finish(layer.b.op("tanh", [scores]), v)


def dropped_out() -> Module:
    layer = Layer()
    q, k, v = layer.qkv()
    module = layer.finish(layer.scaled(layer.product(q, k)), v)
    ops = module.main.ops
    at = next(n for n, op in enumerate(ops) if op.name == "softmax")
    b = IRBuilder(module, layer.function, [], layer.b.names)
    left = b.op("dropout", [ops[at].result, b.scalar(3, DType.I64)], ratio=0.1, stream=0)
    ops[at + 1].operands[0] = left
    ops[at + 1 : at + 1] = b.ops
    return module


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (dropped_out, r"is what dropout leaves of the weights"),
        (trained_scale, r"have a factor that is trained, %scale; freeze it"),
        (trained_mask, r"is of the weight %bias, which is trained; freeze it"),
        (weights_returned, r"is read elsewhere"),
        (finite_number, r"hides keys by -3.40282e\+38, not -inf"),
        (added_to_again, r"are no product of q and k that it alone reads"),
    ],
)
def test_what_is_not_and_why(form: Callable[[], Module], why: str) -> None:
    module, training = build(form)
    assert training.attention is not None and training.attention.recognized == 0
    (said,) = training.attention.missed
    assert said.startswith("%") and re.search(why, said), said
    assert "softmax" in [op.name for op in module.main.ops]


@pytest.mark.parametrize("form", [trained_scale, trained_mask])
def test_frozen_numbers_are_constants(form: Callable[[], Module]) -> None:
    _, training = build(form, frozen=("scale",) if form is trained_scale else ("bias",))
    assert training.attention is not None and training.attention.recognized == 1


@pytest.mark.parametrize("name", FORMS)
def test_the_peak_is_not_higher(name: str) -> None:
    peaks = [planned_peak(build(FORMS[name], attention)[0].main) for attention in (True, False)]
    assert peaks[0] <= peaks[1]


def test_written_out_where_the_peak_would_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([101, 100])
    monkeypatch.setattr("memc.passes.training.attention_choice.planned_peak", lambda *_: next(peaks))
    module, training = build(gpt2)
    assert training.attention is not None and training.attention.recognized == 0
    assert training.attention.missed == (
        "the step would need 101 B for its values, and 100 B with attention written out",
    )
    assert "attention_training" not in [op.name for op in module.main.ops]
    found, expected = (evaluate(m, feeds(module)) for m in (module, build(gpt2, attention=False)[0]))
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)


@pytest.mark.parametrize(
    ("options", "times"),
    [({}, 1), ({"opt_level": 3}, 1), ({"opt_level": 1}, 0), ({"kernels": "generated"}, 0), ({"target": "cuda"}, 1)],
)
def test_where_it_is_looked_for(options: dict[str, object], times: int) -> None:
    """From -O2 on, for targets with kernels for it."""
    train = BuildGradient(optimizer="sgd", loss="mse")
    done = memc.compile(gpt2(), train=train, plan_only=True, **options)  # type: ignore[arg-type]
    assert Counter(op.name for op in done.module.main.ops)["attention_training"] == times
    assert done.report.training is not None and done.report.training.attention == times


@pytest.mark.parametrize("half", ["bf16", "f16"])
@pytest.mark.parametrize("form", [gpt2, bert, padded, llama], ids=lambda form: form.__name__)
def test_half_precision_on_cuda(form: Callable[[], Module], half: str) -> None:
    """Attention is found before anything is rounded: queries, keys and values are halves, masks of floats f32, and gradients
    as near to those of f32 as those of attention written out, as halves."""
    found = []
    for attention in (True, False):
        module = form()
        module.target = Target.of("cuda")
        how = BuildGradient(optimizer="none", loss="mse", attention=attention, half=half)  # type: ignore[arg-type]
        training = how.apply(module)
        ops = [op for op in module.main.ops if op.name in ("attention_training", "attention_grad")]
        assert len(ops) == 2 * attention
        for op in ops:
            assert [x.type.dtype for x in op.operands[:3]] == [DType(half)] * 3
            masks = op.operands[3:4] if len(op.operands) in (4, 7) else []
            assert all(x.type.dtype in (DType.F32, DType.BOOL) for x in masks)
        assert (training.attention is not None and training.attention.recognized == 1) == attention
        found.append(evaluate(module, feeds(module)))
    exact = build(form)[0]
    for key, value in evaluate(exact, feeds(exact)).items():
        size = np.abs(value).max()
        one, written_out = (np.abs(x[key].astype(np.float64) - value).max() / size for x in found)
        assert one < max(1.5 * written_out, 0.01), key


def test_several_batches_and_steps() -> None:
    """Two micro-batches and Adam: the loss falls alike."""
    losses = []
    for attention in (True, False):
        train = BuildGradient(optimizer="adam", loss="mse", accumulate=2, attention=attention)
        step = memc.compile(llama(), train=train).load()
        step.learning_rate = 0.01
        rng = np.random.default_rng(1)
        x, y = (rng.standard_normal((2 * BATCH, TOKENS, WIDTH)).astype(np.float32) for _ in range(2))
        losses.append([float(step(x, y)) for _ in range(5)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]
