# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's Attention and QAttention."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import InvalidError, UnsupportedError

RANDOM = np.random.default_rng(9)
BATCH, TOKENS, HEADS, WIDTH, INPUT = 2, 5, 3, 4, 6
HIDDEN = HEADS * WIDTH
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def data(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def projection(tokens=TOKENS, sizes=(HIDDEN,) * 3):
    return [data(BATCH, tokens, INPUT), data(INPUT, sum(sizes)), data(sum(sizes))]


def masks(keys, queries):
    """One of each kind: ends, ends and starts, by key, by query and key, one that says nothing."""
    return {
        "none": None,
        "ends": np.array([3, keys], np.int32),
        "ends and starts": np.array([keys, keys - 1, 1, 0], np.int32),
        "keys": np.array([[1] * keys, [0, 1] + [2] * (keys - 3) + [-1]], np.int32),
        "queries": RANDOM.integers(0, 2, (BATCH, queries, keys)).astype(np.int32),
        "one number": np.zeros((1, 1), np.int32),
        "one for a sequence": np.zeros((BATCH, 1), np.int32),
    }


KINDS = list(masks(5, 5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [None, 3, 0])
@pytest.mark.parametrize("known", [True, False])
def test_masks_and_past(same, kind, causal, past, known):
    mask = masks(TOKENS + (past or 0), TOKENS)[kind]
    inputs = [*projection(), mask, None if past is None else data(2, BATCH, HEADS, past, WIDTH)]
    while inputs[-1] is None:
        inputs.pop()
    attrs = {"num_heads": HEADS, "unidirectional": causal, "mask_filter_value": -3.0}
    constant = (3,) if known and mask is not None else ()
    if past is not None:
        same("Attention", inputs, 2, known=constant, **attrs, **NEAR)
    else:
        same("Attention", inputs, known=constant, **attrs, **NEAR)
        same("Attention", inputs, 2, known=(1, 2, *constant), **attrs, **NEAR)


@pytest.mark.parametrize("tokens", [1, 2, 7, 16])
def test_lengths(same, tokens):
    same("Attention", projection(tokens), num_heads=HEADS, unidirectional=1, **NEAR)
    inputs = [*projection(tokens), None, data(2, BATCH, HEADS, 2, WIDTH)]
    same("Attention", inputs, 2, num_heads=HEADS, unidirectional=1, **NEAR)


@pytest.mark.parametrize("shape", [*itertools.product((1, BATCH), (1, HEADS))])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_bias(same, shape, causal, masked):
    mask = masks(TOKENS, TOKENS)["keys"] if masked else None
    inputs = [*projection(), mask, None, data(*shape, TOKENS, TOKENS)]
    same("Attention", inputs, num_heads=HEADS, unidirectional=causal, mask_filter_value=-3.0, **NEAR)


def test_the_default_of_the_masked_value_keeps_keys_back(same):
    """Whole rows stay as they are but for the precision of numbers near -10000."""
    mask = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0]], np.int32)
    same("Attention", [*projection(), mask], num_heads=HEADS, rtol=5e-3, atol=5e-3)


def test_scale_sizes_and_no_bias(same):
    same("Attention", projection(), num_heads=HEADS, scale=0.3, **NEAR)
    same("Attention", projection()[:2], num_heads=HEADS, **NEAR)
    sizes = (HIDDEN, HIDDEN, HEADS * 2)
    same("Attention", projection(sizes=sizes), num_heads=HEADS, qkv_hidden_sizes=sizes, **NEAR)


def test_half_precision(run):
    inputs = projection()
    (wide,) = run("Attention", inputs, num_heads=HEADS, unidirectional=1)
    (found,) = run("Attention", [x.astype(np.float16) for x in inputs], num_heads=HEADS, unidirectional=1)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), wide, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("of", [np.uint8, np.int8])
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "by column"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [False, True])
def test_qattention(same, of, each, causal, past):
    info, count = np.iinfo(of), (3 * HIDDEN,) if each else ()
    x = RANDOM.integers(0, 256, (BATCH, TOKENS, INPUT)).astype(np.uint8)
    weights = RANDOM.integers(info.min, info.max + 1, (INPUT, 3 * HIDDEN)).astype(of)
    scales = np.array(RANDOM.uniform(0.005, 0.01, count), np.float32)
    zeros = np.array(RANDOM.integers(info.min, info.max + 1, count), of)
    mask = masks(TOKENS + (2 if past else 0), TOKENS)["ends"]
    inputs = [x, weights, data(3 * HIDDEN), np.array(0.02, np.float32), scales, mask, np.array(120, np.uint8), zeros]
    attrs = {"num_heads": HEADS, "unidirectional": causal}
    if past:
        same("QAttention", [*inputs, data(2, BATCH, HEADS, 2, WIDTH)], 2, known=(1, 7), **attrs, **NEAR)
    else:
        same("QAttention", inputs, known=(1, 7), **attrs, **NEAR)
        same("QAttention", inputs[:5], known=(1,), **attrs, **NEAR)


REFUSED = [
    ({"do_rotary": 1}, {}, "do_rotary 1"),
    ({"past_present_share_buffer": 1}, {}, "past_present_share_buffer 1"),
    ({"num_heads": 5}, {}, "expected columns for 5 heads, got 12"),
    (
        {"qkv_hidden_sizes": [12, 12, 6]},
        {},
        r"expected equal columns of q and k, and 36 with those of v, got \[12, 12, 6\]",
    ),
    (
        {},
        {3: np.zeros((BATCH, 1, 8, 8), np.int32)},
        r"expected a mask of shape \[2\], \[2, 5\] or \[2, 5, 5\], got i32\[2,1,8,8\]",
    ),
    ({}, {3: np.zeros(3 * BATCH + 2, np.int32)}, r"expected a mask of shape .* got i32\[8\]"),
    (
        {},
        {4: np.zeros((2, 2, 3, 2, 3), np.float32)},
        r"expected a past of shape \[2, 2, 3, 2, 4\], got f32\[2,2,3,2,3\]",
    ),
    ({}, {5: np.zeros((2, 3, 5, 6), np.float32)}, r"expected an attention_bias of shape \[2, 3, 5, 5\]"),
    ({}, {6: np.zeros(1, np.int32)}, "input past_sequence_length, of a past in a shared buffer"),
]


@pytest.mark.parametrize("attrs, more, message", REFUSED)
def test_refusals(run, attrs, more, message):
    inputs = [*projection(), *(more.get(i) for i in range(3, 7))]
    while inputs[-1] is None:
        inputs.pop()
    with pytest.raises(UnsupportedError, match=rf"node `node` \(Attention\): {message}"):
        run("Attention", inputs, **{"num_heads": HEADS, **attrs})


def test_heads_must_be_told(run):
    with pytest.raises(InvalidError, match=r"\(Attention\): attribute `num_heads` is missing"):
        run("Attention", projection())
