# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's RotaryEmbedding."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(4)


def caches(rows, half):
    angles = RANDOM.uniform(0, 3, (rows, half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def data(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("start", [True, False], ids=["one id", "an id each"])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("part", [False, True], ids=["all columns", "some columns"])
def test_rotary(same, interleaved, start, rank, part):
    batch, heads, tokens, width = 2, 3, 5, 16
    half = 4 if part else width // 2
    cos, sin = caches(12, half)
    x = data(batch, tokens, heads * width) if rank == 3 else data(batch, heads, tokens, width)
    ids = np.array([4], np.int64) if start else RANDOM.integers(0, 12, (batch, tokens))
    attrs = {"interleaved": interleaved, **({"num_heads": heads, "rotary_embedding_dim": 2 * half} if part else {})}
    same("RotaryEmbedding", [x, ids, cos, sin], rtol=1e-5, **attrs)
    same("RotaryEmbedding", [x, ids, cos, sin], known=(1, 2, 3), rtol=1e-5, **attrs)


def test_half_precision(same):
    cos, sin = caches(6, 4)
    inputs = [data(1, 6, 16).astype(np.float16), np.array([0]), cos.astype(np.float16), sin.astype(np.float16)]
    same("RotaryEmbedding", inputs, rtol=2e-3, atol=2e-3)


def test_refusals(run):
    cos, sin = caches(6, 4)
    with pytest.raises(UnsupportedError, match="is_packed_batching 1"):
        run("RotaryEmbedding", [data(1, 6, 16), np.array([0]), cos, sin], is_packed_batching=1)
    with pytest.raises(UnsupportedError, match=r"expected position ids \[1\] or \[1, 6\], got i64\[2\]"):
        run("RotaryEmbedding", [data(1, 6, 16), np.array([0, 1]), cos, sin])
    with pytest.raises(UnsupportedError, match="expected num_heads that divides 16 with rotary_embedding_dim, got 3"):
        run("RotaryEmbedding", [data(1, 6, 16), np.array([0]), cos, sin], num_heads=3, rotary_embedding_dim=8)
