# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's MultiHeadAttention."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(10)
BATCH, HEADS, WIDTH = 2, 3, 4
HIDDEN = HEADS * WIDTH
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def data(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def parts(queries, keys, values=WIDTH):
    return [data(BATCH, queries, HIDDEN), data(BATCH, keys, HIDDEN), data(BATCH, keys, HEADS * values)]


@pytest.mark.parametrize("queries, keys", [(5, 5), (5, 7), (1, 9), (16, 3)])
@pytest.mark.parametrize("values", [WIDTH, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_cross_attention(same, queries, keys, values, bias):
    inputs = parts(queries, keys, values) + ([data(2 * HIDDEN + HEADS * values)] if bias else [])
    same("MultiHeadAttention", inputs, num_heads=HEADS, **NEAR)
    same("MultiHeadAttention", inputs, num_heads=HEADS, scale=0.4, **NEAR)
    same("MultiHeadAttention", inputs, 3, num_heads=HEADS, **NEAR)


@pytest.mark.parametrize("kind", ["ends", "keys", "queries"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("earlier", [0, 3])
def test_masks(same, kind, known, earlier):
    queries, keys = 5, 7 + earlier
    mask = {
        "ends": np.array([2, keys], np.int32),
        "keys": RANDOM.integers(-1, 3, (BATCH, keys)).astype(np.int32),
        "queries": RANDOM.integers(0, 2, (BATCH, queries, keys)).astype(np.int32),
    }[kind]
    past = [data(BATCH, HEADS, earlier, WIDTH) for _ in range(2)] if earlier else []
    inputs = [*parts(queries, 7), None, mask, *([None, *past] if past else [])]
    count = 3 if earlier else 1
    same(
        "MultiHeadAttention",
        inputs,
        count,
        known=(4,) if known else (),
        num_heads=HEADS,
        mask_filter_value=-3.0,
        **NEAR,
    )


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("tokens, earlier", [(5, 3), (1, 4), (7, 0)])
@pytest.mark.parametrize("bias", [False, True])
def test_past_and_present(same, causal, tokens, earlier, bias):
    past = [data(BATCH, HEADS, earlier, WIDTH) for _ in range(2)] if earlier else []
    inputs = [*parts(tokens, tokens), data(3 * HIDDEN) if bias else None, *([None, None, *past] if past else [])]
    while inputs[-1] is None:
        inputs.pop()
    same("MultiHeadAttention", inputs, 3, num_heads=HEADS, unidirectional=causal, **NEAR)


@pytest.mark.parametrize("lead", [*itertools.product((1, BATCH), (1, HEADS))])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_bias(same, lead, masked):
    mask = RANDOM.integers(0, 2, (BATCH, 7)).astype(np.int32) if masked else None
    inputs = [*parts(5, 7), None, mask, data(*lead, 5, 7)]
    same("MultiHeadAttention", inputs, num_heads=HEADS, mask_filter_value=-3.0, **NEAR)


@pytest.mark.parametrize("bias", [False, True])
def test_keys_and_values_that_are_split_already(same, bias):
    inputs = [data(BATCH, 5, HIDDEN), data(BATCH, HEADS, 7, WIDTH), data(BATCH, HEADS, 7, WIDTH)]
    same("MultiHeadAttention", inputs + ([data(3 * HIDDEN)] if bias else []), num_heads=HEADS, **NEAR)


def test_scores_are_an_output(run):
    q, k, v = parts(5, 7)
    mask = RANDOM.integers(0, 2, (BATCH, 7)).astype(np.int32)
    inputs = [q, k, v, None, mask]
    _, scores = run("MultiHeadAttention", inputs, ["y", "", "", "qk"], num_heads=HEADS, mask_filter_value=-3.0)
    apart = [x.reshape(BATCH, -1, HEADS, WIDTH).transpose(0, 2, 1, 3) for x in (q, k)]
    wanted = apart[0] @ apart[1].transpose(0, 1, 3, 2) / 2 + np.where(mask > 0, 0, -3.0)[:, None, None]
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-5)


REFUSED = [
    ([data(BATCH, 5, HEADS, 3, WIDTH)], {}, r"packed queries, keys and values f32\[2,5,3,3,4\]"),
    ([data(BATCH, 5, 3 * HIDDEN)], {}, r"packed queries, keys and values f32\[2,5,36\]"),
    ([data(BATCH, 5, HIDDEN), data(BATCH, 7, HEADS, 2, WIDTH)], {}, r"packed keys and values f32\[2,7,3,2,4\]"),
    (parts(5, 7), {"unidirectional": 1}, "unidirectional with 5 queries and 7 keys"),
    (
        [*parts(1, 1), None, None, None, *[data(BATCH, HEADS, 8, WIDTH)] * 2, np.zeros(1, np.int32)],
        {},
        "inputs past_sequence_length",
    ),
    ([*parts(5, 7), None, np.zeros((BATCH, 1), np.int32)], {}, r"expected a mask of shape .* got i32\[2,1\]"),
    (
        [*parts(5, 7), None, None, None, data(BATCH, HEADS, 2, WIDTH)],
        {},
        "expected past_key and past_value, or neither",
    ),
]


@pytest.mark.parametrize("inputs, attrs, message", REFUSED)
def test_refusals(run, inputs, attrs, message):
    with pytest.raises(UnsupportedError, match=rf"node `node` \(MultiHeadAttention\): {message}"):
        run("MultiHeadAttention", inputs, num_heads=HEADS, **attrs)
