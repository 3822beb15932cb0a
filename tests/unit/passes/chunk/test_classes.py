# SPDX-License-Identifier: Apache-2.0
"""Heads in slices of their classes: the same values, no sum over the rows split, and no gradient of the weight twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify
from memc.passes.chunk.classes import Head, head_of, run_in_classes, slices_for
from memc.passes.chunk.slices import bounds_of
from memc.passes.chunk.stretch import Graph, find_stretch

from .slicing import BATCH, LOSS, SUM, TOKENS, WIDTH, WORDS, batch, chunked, compare, language_model, largest, trained

ROWS = BATCH * TOKENS


def widest(module: Module) -> int:
    """Elements of the largest value with a number for each row of a batch and for some classes."""
    found = [v for op in module.main.ops for v in op.results if v.type.shape[:1] in ((ROWS,), (BATCH,))]
    return max(v.type.elements // ROWS for v in found)


def head_in(module: Module) -> Head | str:
    seed = next(op.result for op in module.main.ops if op.name == "matmul" and op.result.type.shape[-1] == WORDS)
    stretch = find_stretch(Graph.of(module.main), seed)
    return stretch if isinstance(stretch, str) else head_of(stretch)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("how", ["optimizer=adamw epsilon=0.01", "optimizer=sgd", "optimizer=none"])
def test_head(tied: bool, how: str) -> None:
    module = trained(language_model(tied=tied), how)
    made, chunks = chunked(module, "chunk{by=classes slices=4}")
    (found,) = chunks.chosen
    assert (found.of, found.positions, found.slices) == ("classes", WORDS, 4)
    assert widest(module) == WORDS and widest(made) <= 128
    compare(module, made, batch(module, ignored=7), exact=())


def test_weight_with_a_column_for_each_class() -> None:
    module = language_model(tied=False)
    text = str(module).replace(f"%v: f32[{WORDS},{WIDTH}]", f"%v: f32[{WIDTH},{WORDS}]")
    text = text.replace(
        "%v) {transpose_a = false, transpose_b = true}", "%v) {transpose_a = false, transpose_b = false}"
    )
    turned = parse(text, "columns.memir")
    turned.weights = {**module.weights, "v": np.ascontiguousarray(module.weights["v"].T)}
    trained(turned)
    made, chunks = chunked(turned, "chunk{by=classes slices=4}")
    assert chunks.chosen[0].of == "classes"
    wanted, found = evaluate(turned, batch(turned)), evaluate(made, batch(turned))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_halves(precision: str) -> None:
    how = "loss-scale=dynamic" if precision == "f16" else "optimizer=adamw epsilon=0.01"
    module = trained(language_model(), how, precision)
    made, chunks = chunked(module, "chunk{by=classes slices=4}")
    assert [found.of for found in chunks.chosen] == ["classes"]
    compare(module, made, batch(module), exact=(), atol=2e-4)


def test_rows_of_the_gradient_of_the_weight_are_added_to_by_nothing() -> None:
    made, _ = chunked(trained(language_model(tied=False)), "chunk{by=classes slices=4}")
    uses = made.main.uses()
    parts = [
        op.result
        for op in made.main.ops
        if op.name == "matmul" and op.result.type.shape in ((128, WIDTH), (116, WIDTH))
    ]
    rows = [v for v in parts if v.op is not None and v.op.attrs["transpose_a"]]
    assert [v.type.shape[0] for v in rows] == [128, 128, 128, 116]
    (joined,) = {op for v in rows for op in uses[v]}
    assert joined.name == "concat" and joined.operands == rows and joined.result.type.shape == (WORDS, WIDTH)


def test_label_smoothing_is_left_to_rows() -> None:
    module = trained(language_model(more=LOSS + SUM + "  return %sum\n"), "loss=output")
    assert isinstance(head_in(module), str)
    made, chunks = chunked(module)
    assert chunks.chosen[0].of == "rows" and largest(made, WORDS) < ROWS


def test_labels_that_name_no_class() -> None:
    module = trained(language_model(), "optimizer=none")
    made, _ = chunked(module, "chunk{by=classes slices=3}")
    inputs = batch(module)
    inputs["labels"][0, 3] = -1
    wanted, found = evaluate(module, inputs), evaluate(made, inputs)
    for name in wanted:
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(wanted[name]))


def test_slices_that_a_cache_holds() -> None:
    head = head_in(trained(language_model(), precision="bf16"))
    assert isinstance(head, Head)
    assert slices_for(head, ROWS * WORDS * 2 // 5) == 5 and slices_for(head, 2**40) == 2


@settings(max_examples=25)
@given(st.integers(2, 9), st.integers(2, 12), st.integers(1, 40), st.booleans())
def test_any_number_of_slices(tokens: int, slices: int, grain: int, tied: bool) -> None:
    module = trained(language_model(tokens, tied))
    inputs = batch(module)
    wanted = evaluate(module, inputs)
    head = head_in(module)
    assert isinstance(head, Head)
    run_in_classes(module, module.main, head, bounds_of(WORDS, slices, grain))
    verify(module)
    found = evaluate(module, inputs)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
