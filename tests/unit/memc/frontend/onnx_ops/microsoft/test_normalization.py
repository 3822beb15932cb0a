# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's skip and embedding normalizations."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(3)


def data(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("beta, bias", [*itertools.product((False, True), repeat=2)])
@pytest.mark.parametrize(
    "shape, skip", [((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (1, 3, 8)), ((2, 3, 8), (3, 8)), ((5, 7), (5, 7))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_skip_layer_normalization(same, shape, skip, beta, bias, dtype):
    width = shape[-1]
    inputs = [data(*shape), data(*skip), data(width), data(width) if beta else None, data(width) if bias else None]
    inputs = [None if x is None else x.astype(dtype) for x in inputs]
    while inputs[-1] is None:
        inputs.pop()
    near = {"rtol": 4e-3, "atol": 4e-3} if dtype is np.float16 else {"rtol": 1e-4, "atol": 1e-5}
    same("SkipLayerNormalization", inputs, 4, epsilon=1e-5, **near)
    same("SkipLayerNormalization", inputs, ["y", "", "", "sum"], **near)
    same("SkipLayerNormalization", inputs, ["y", "", "inverse"], **near)
    same("SkipLayerNormalization", inputs, **near)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 8), (5, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_skip_simplified_layer_normalization(same, shape, bias, dtype):
    inputs = [data(*shape), data(*shape), data(shape[-1])] + ([data(shape[-1])] if bias else [])
    inputs = [x.astype(dtype) for x in inputs]
    near = {"rtol": 4e-3, "atol": 4e-3} if dtype is np.float16 else {"rtol": 1e-4, "atol": 1e-5}
    same("SkipSimplifiedLayerNormalization", inputs, 4, epsilon=1e-6, **near)
    same("SkipSimplifiedLayerNormalization", inputs, ["y", "", "", "sum"], **near)
    same("SkipSimplifiedLayerNormalization", inputs, **near)


def embeddings(segments, mask, ids):
    batch, tokens, hidden = 3, 5, 8
    integer = lambda high, *shape: RANDOM.integers(0, high, shape).astype(np.int32)  # noqa: E731
    return [
        integer(20, batch, tokens),
        integer(2, batch, tokens) if segments else None,
        data(20, hidden),
        data(9, hidden),
        data(2, hidden) if segments else None,
        data(hidden),
        data(hidden),
        integer(3, batch, tokens) if mask else None,
        integer(9, *((batch, tokens) if ids == "each" else (1, tokens))) if ids else None,
    ]


@pytest.mark.parametrize(
    "segments, mask, ids", [*itertools.product((False, True), (False, True), (None, "each", "one"))]
)
def test_embed_layer_normalization(same, segments, mask, ids):
    inputs = embeddings(segments, mask, ids)
    same("EmbedLayerNormalization", inputs, 3, epsilon=1e-5, rtol=1e-4, atol=1e-5)
    same("EmbedLayerNormalization", inputs, 2, rtol=1e-4, atol=1e-5, mask_index_type=1)


@pytest.mark.parametrize("of", [np.uint8, np.int8])
@pytest.mark.parametrize("segments, mask", [*itertools.product((False, True), repeat=2)])
def test_qembed_layer_normalization(same, of, segments, mask):
    inputs, info = embeddings(segments, mask, None)[:8], np.iinfo(of)
    scales, zeros = [], []
    for index in range(2, 7):
        given = inputs[index]
        if given is not None:
            inputs[index] = RANDOM.integers(info.min, info.max + 1, given.shape).astype(of)
        scales.append(None if given is None else np.array(RANDOM.uniform(0.01, 0.02), np.float32))
        zeros.append(None if given is None else np.array(RANDOM.integers(info.min, info.max + 1), of))
    same("QEmbedLayerNormalization", [*inputs, *scales, *zeros], 2, epsilon=1e-5, rtol=1e-4, atol=1e-5)


def test_refusals(run):
    with pytest.raises(UnsupportedError, match=r"expected a skip that broadcasts over the batch of f32\[2,2,4\]"):
        run("SkipLayerNormalization", [data(2, 2, 4), data(1, 1, 4), data(4)])
    with pytest.raises(UnsupportedError, match=r"expected position embeddings for 5 tokens, got f32\[2,8\]"):
        inputs = embeddings(False, False, None)
        inputs[3] = data(2, 8)
        run("EmbedLayerNormalization", inputs, 2)
    with pytest.raises(UnsupportedError, match="expected segment ids and a segment embedding, or neither"):
        inputs = embeddings(True, False, None)
        inputs[4] = None
        run("EmbedLayerNormalization", inputs, 2)
