# SPDX-License-Identifier: Apache-2.0
"""Heads in slices of their classes where extents mislead, scores are -inf, or ops around them are unusual: the same values, or a
reason."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Role
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify
from memc.passes.chunk.classes import Head, head_of, run_in_classes
from memc.passes.chunk.slices import bounds_of
from memc.passes.chunk.stretch import Graph, find_stretch

from .slicing import LOSS, SUM, Arrays, chunked, language_model, trained

ROWS, CLASSES = 64, 96


def scores(body: str = "", width: int = 8, turned: bool = False, more: str = "", result: str = "z") -> Module:
    """%z = %x %w, then `body`; `more` parameters."""
    weight = f"{CLASSES},{width}" if turned else f"{width},{CLASSES}"
    text = f"""\
func @main(%x: f32[{ROWS},{width}] {{role = input}}, %w: f32[{weight}] {{role = weight}}{more}) -> (f32[{ROWS},{CLASSES}] {{name = "logits"}}) {{
  %z = matmul(%x, %w) {{transpose_a = false, transpose_b = {str(turned).lower()}}} : f32[{ROWS},{CLASSES}]
{body}  return %{result}
}}
"""
    module = parse(text, "scores.memir")
    rng = np.random.default_rng(0)
    for p in module.main.params_of(Role.WEIGHT):
        module.weights[p.name] = (rng.standard_normal(p.type.shape) / 4).astype(np.float32)
    return module


def drawn(module: Module) -> Arrays:
    rng = np.random.default_rng(1)
    found: Arrays = {}
    for p in module.main.params_of(Role.INPUT):
        labels = p.type.dtype.value == "i64"
        found[p.name] = (
            rng.integers(0, 30, p.type.shape) if labels else rng.standard_normal(p.type.shape).astype(np.float32)
        )
    return {name: np.float32(0.1) if name == "learning_rate" else value for name, value in found.items()}


def head_in(module: Module, seed: str = "z") -> Head | str:
    value = next(v for op in module.main.ops for v in op.results if v.name == seed)
    stretch = find_stretch(Graph.of(module.main), value)
    return stretch if isinstance(stretch, str) else head_of(stretch)


def same(module: Module, inputs: Arrays, slices: int = 3, seed: str = "z") -> Arrays:
    """What a module computes, after a comparison with what it does in slices of classes."""
    made = copy.deepcopy(module)
    head = head_in(made, seed)
    assert isinstance(head, Head), head
    run_in_classes(made, made.main, head, bounds_of(CLASSES, slices, 1))
    verify(made)
    wanted, found = evaluate(module, inputs), evaluate(made, inputs)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
    return wanted


BIAS = f"  %y = add(%z, %b) : f32[{ROWS},{CLASSES}]\n"


@pytest.mark.parametrize("optimizer", ["sgd", "none"])
def test_classes_of_minus_infinity(optimizer: str) -> None:
    """Those of whole slices, the first and the last of which hold no other."""
    module = scores(BIAS, more=f", %b: f32[{CLASSES}] {{role = weight}}", result="y")
    module.weights["b"][:32] = module.weights["b"][64:] = -np.inf
    trained(module, f"optimizer={optimizer} frozen=b")
    inputs = drawn(module)
    inputs["labels"] = inputs["labels"] + 33
    wanted = same(module, inputs)
    gradient = wanted["w.grad" if optimizer == "none" else "w"]
    assert np.isfinite(wanted["loss"]) and np.isfinite(gradient).all()
    if optimizer == "none":
        assert not gradient[:, :32].any() and not gradient[:, 64:].any() and gradient[:, 33:63].any()


def test_rows_of_minus_infinity() -> None:
    """One row has scores in one slice alone, another in none: the loss of that one is nan, as it is whole."""
    module = scores(BIAS, more=f", %b: f32[{ROWS},{CLASSES}] {{role = input}}", result="y")
    trained(module, "optimizer=none")
    inputs = drawn(module)
    inputs["b"][5, 32:] = -np.inf
    assert np.isfinite(same(module, inputs)["loss"])
    inputs["b"][7] = -np.inf
    wanted = same(module, inputs)
    assert np.isnan(wanted["loss"]) and np.isnan(wanted["w.grad"]).all()


@pytest.mark.parametrize("op", ["add(%z, %b)", "tanh(%z)"])
def test_positions_that_are_made_among_the_slices(op: str) -> None:
    """A stretch that is found around them takes them in."""
    text = f"""\
func @main(%x: f32[{ROWS},8] {{role = input}}, %labels: i64[{ROWS}] {{role = input}}, %b: f32[{ROWS},{CLASSES}] {{role = input}}, %w: f32[8,{CLASSES}] {{role = weight}}) -> (f32[] {{name = "loss"}}) {{
  %z = matmul(%x, %w) {{transpose_a = false, transpose_b = false}} : f32[{ROWS},{CLASSES}]
  %y = {op} : f32[{ROWS},{CLASSES}]
  %l, %t = softmax_cross_entropy(%y, %labels) {{ignore_index = -100, label_smoothing = 0.0}} : f32[{ROWS}], f32[{ROWS}]
{SUM}  return %sum
}}
"""
    module = parse(text, "positions.memir")
    module.weights["w"] = np.random.default_rng(0).standard_normal((8, CLASSES)).astype(np.float32)
    trained(module, "loss=output optimizer=sgd")
    positions = next(op.operands[1] for op in module.main.ops if op.name == "gather_elements")
    head = head_in(module, positions.name)
    assert isinstance(head, Head), head
    assert positions.op in head.stretch.forms and not head.is_wide(positions)
    same(module, drawn(module), 4, positions.name)


@pytest.mark.parametrize("turned", [True, False])
def test_hidden_states_as_wide_as_there_are_classes(turned: bool) -> None:
    module = trained(scores(width=CLASSES, turned=turned), "optimizer=sgd")
    head = head_in(module)
    assert isinstance(head, Head) and not head.is_wide(head.product.operands[0])
    same(module, drawn(module), 4)
    made, chunks = chunked(module, "chunk{by=classes slices=4}")
    assert [found.of for found in chunks.chosen] == ["classes"]
    wanted, found = evaluate(module, drawn(module)), evaluate(made, drawn(module))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_hidden_states_that_are_added_to_scores() -> None:
    body = f"  %y = add(%z, %x) : f32[{ROWS},{CLASSES}]\n"
    module = trained(scores(body, width=CLASSES, result="y"), "optimizer=sgd")
    assert head_in(module) == "what its scores are a product of is read class by class too"


def test_layers_as_wide_as_there_are_classes() -> None:
    text = str(scores(width=CLASSES)).replace("matmul(%x,", "matmul(%h,")
    text = text.replace(f"%x: f32[{ROWS},{CLASSES}]", f"%u: f32[8,{CLASSES}] {{role = weight}}, %x: f32[{ROWS},8]")
    first = f"  %g = matmul(%x, %u) {{transpose_a = false, transpose_b = false}} : f32[{ROWS},{CLASSES}]\n"
    text = text.replace("  %z =", f"{first}  %h = tanh(%g) : f32[{ROWS},{CLASSES}]\n  %z =")
    module = parse(text, "layers.memir")
    for p in module.main.params_of(Role.WEIGHT):
        module.weights[p.name] = np.zeros(p.type.shape, np.float32)
    _, chunks = chunked(trained(module, "optimizer=sgd"), "chunk{by=classes slices=4}")
    assert not chunks.chosen
    assert any("takes none of its scores" in why for why in chunks.missed)


def test_largest_scores_as_a_result() -> None:
    """A slice has its own."""
    module = trained(scores(), "optimizer=sgd")
    assert isinstance(head_in(module), Head)
    largest = next(op.result for op in module.main.ops if op.name == "reduce_max")
    module.main.returns.append(IRBuilder(module, module.main, module.main.ops).op("neg", [largest]))
    assert head_in(module) == "a result is of more than the softmax and gradients"


def test_why_classes_cannot_be_sliced_is_said() -> None:
    module = trained(language_model(more=LOSS + SUM + "  return %sum\n"), "loss=output")
    why = head_in(module)
    _, chunks = chunked(module, "chunk{by=classes slices=4}")
    assert (
        why == "reduce_sum takes all classes of its scores" or why == "its scores have other sums than those of softmax"
    )
    assert not chunks.chosen and any(missed.endswith(str(why)) for missed in chunks.missed)
