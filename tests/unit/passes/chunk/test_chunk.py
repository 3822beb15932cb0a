# SPDX-License-Identifier: Apache-2.0
"""Language models' heads and other stretches in slices: what they compute, what is live at a time, and what stays whole."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.evaluate import evaluate
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline

from .slicing import (
    AFTER,
    BATCH,
    BEFORE,
    LOSS,
    SUM,
    TOKENS,
    WIDTH,
    WORDS,
    batch,
    chunked,
    compare,
    language_model,
    largest,
    trained,
)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("how", ["optimizer=adamw epsilon=0.01", "optimizer=sgd", "optimizer=none", "clip-norm=0.5"])
def test_head_in_training(tied: bool, how: str) -> None:
    module = trained(language_model(tied=tied), how)
    made, chunks = chunked(module)
    (found,) = chunks.chosen
    assert found.value == "z" and found.positions == BATCH * TOKENS and found.splits_sums
    assert largest(module, WORDS) == BATCH * TOKENS and largest(made, WORDS) <= BATCH * TOKENS // found.slices
    compare(module, made, batch(module))


def test_no_second_gradient_of_the_weight() -> None:
    """Each slice adds its share of the weight's gradient in the product's own call, over the sum so far."""
    module = trained(language_model(tied=False))
    made, chunks = chunked(module, "chunk{by=rows slices=4}")
    PassManager.parse(AFTER).run(made)
    gradients = [
        op
        for op in made.main.ops
        if op.results and op.results[0].type.shape == (WORDS, WIDTH) and op.name in ("matmul", "fused")
        and op.plan.library_kernel is not None
    ]  # fmt: skip
    assert len(gradients) == 4
    assert [op.plan.in_place for op in gradients] == [None, 2, 2, 2]
    assert len({op.result.root for op in gradients}) == 1


def test_gradient_lies_over_the_logits() -> None:
    made, _ = chunked(trained(language_model()), "chunk{by=rows slices=4}")
    PassManager.parse(AFTER).run(made)
    slices = [v for op in made.main.ops for v in op.results if v.type.shape[-2:] == (32, WORDS)]
    roots = {v.root for v in slices if v.type.dtype.value == "f32"}
    assert len({v.placement for v in roots}) == 1 and len(roots) <= 4


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_half_precision(precision: str) -> None:
    how = "loss-scale=dynamic" if precision == "f16" else "optimizer=adamw epsilon=0.01"
    module = trained(language_model(), how, precision)
    made, chunks = chunked(module)
    assert any(found.positions == BATCH * TOKENS for found in chunks.chosen)
    compare(module, made, batch(module), atol=2e-4)


def test_logits_of_halves_are_not_widened_in_memory() -> None:
    module = trained(language_model(), precision="bf16")
    PassManager.parse(AFTER).run(module)
    wide = [v for op in module.main.ops for v in op.results if v.type.shape[-1:] == (WORDS,) and v.type.rank > 1]
    assert {v.type.dtype.value for v in wide if v.type.elements > WORDS} == {"bf16"}


def test_ignored_labels_do_not_count() -> None:
    module = trained(language_model())
    made, _ = chunked(module)
    compare(module, made, batch(module, ignored=70))
    everything = evaluate(made, batch(module, ignored=BATCH * TOKENS))
    assert everything["loss"] == 0


def test_labels_that_name_no_class() -> None:
    module = trained(language_model(), "optimizer=none")
    made, _ = chunked(module)
    inputs = batch(module)
    inputs["labels"][0, 3] = -1
    wanted, found = evaluate(module, inputs), evaluate(made, inputs)
    assert np.isnan(found["loss"]) and np.isnan(wanted["loss"])
    for name in wanted:
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(wanted[name]))


@pytest.mark.parametrize("tokens", [1, 2, 53, 61])
def test_any_number_of_tokens(tokens: int) -> None:
    module = trained(language_model(tokens))
    made, chunks = chunked(module, "chunk{by=rows slices=5 slowdown=1000}")
    inputs = batch(module)
    wanted, found = evaluate(module, inputs), evaluate(made, inputs)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
    if tokens > 2:
        assert chunks.chosen and largest(made, WORDS) < BATCH * tokens


def test_micro_batches() -> None:
    module = trained(language_model(), "accumulate=2")
    made, chunks = chunked(module)
    assert len(chunks.chosen) >= 1
    compare(module, made, batch(module))


def test_label_smoothing() -> None:
    module = trained(language_model(more=LOSS + SUM + "  return %sum\n"), "loss=output")
    made, chunks = chunked(module)
    assert chunks.chosen
    compare(module, made, batch(module, ignored=9))


def test_class_weights() -> None:
    more = f"""\
{LOSS}  %c = iota() {{shape = [{WORDS}], axis = 0, dtype = f32}} : f32[{WORDS}]
  %k = gather(%c, %labels) {{axis = 0}} : f32[{BATCH * TOKENS}]
  %weighed = mul(%l, %k) : f32[{BATCH * TOKENS}]
{SUM.replace("%l", "%weighed")}  return %sum
"""
    module = trained(language_model(more=more), "loss=output")
    made, chunks = chunked(module)
    assert chunks.chosen
    compare(module, made, batch(module))


def test_loss_that_depends_on_all_rows() -> None:
    """The gradient of the loss' square needs the loss of every token before that of any logits: nothing of it runs in slices."""
    more = LOSS + SUM + "  %square = mul(%sum, %sum) : f32[]\n  return %square\n"
    module = trained(language_model(more=more), "loss=output")
    made, chunks = chunked(module)
    inputs = batch(module)
    np.testing.assert_array_equal(evaluate(made, inputs)["loss"], evaluate(module, inputs)["loss"])
    assert largest(made, WORDS) == BATCH * TOKENS
    assert any("reduce_sum" in why or "kept for other ops" in why or "lower no peak" in why for why in chunks.missed)


def test_logits_that_are_a_result_stay_whole() -> None:
    module = language_model(more=LOSS + SUM + "  return %sum, %z\n")
    PassManager.parse(BEFORE).run(module)
    made, chunks = chunked(module)
    assert any(op.results[0].name == "z" or "z" in {v.name for v in made.main.returns} for op in made.main.ops)
    assert largest(made, WORDS) == BATCH * TOKENS
    inputs = batch(module)
    np.testing.assert_allclose(evaluate(made, inputs)["logits"], evaluate(module, inputs)["logits"], atol=1e-5)


def test_levels_run_it() -> None:
    for level, there in ((0, False), (1, False), (2, True), (3, True)):
        assert ("chunk{heads}" in pipeline(level).split(",")) is there


def test_slices_are_views() -> None:
    """No slice of the hidden states is copied."""
    module = trained(language_model())
    made, _ = chunked(module, "chunk{by=rows slices=4}")
    PassManager.parse(AFTER).run(made)
    cut = [op for op in made.main.ops if op.name == "slice" and op.result.type.shape[-1] > 1]
    assert cut and all(op.result.root is op.operands[0].root for op in cut)
