# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's products with packed weights."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(8)
ZEROS = ["none", "packed", "float"]


def packed(*shape):
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def data(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def arrays(k, n, bits, block, zero):
    """Packed weights, scales, and zero points: none, packed or as floats."""
    blocks = -(-k // block)
    points = {
        "none": None,
        "packed": packed(n, -(-blocks * bits // 8)),
        "float": RANDOM.uniform(0, 1 << bits, (n, blocks)).astype(np.float32),
    }
    scales = RANDOM.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    return [packed(n, blocks, block * bits // 8), scales, points[zero]]


@pytest.mark.parametrize("bits, zero", [case for case in itertools.product((2, 4, 8), ZEROS) if case != (8, "float")])
@pytest.mark.parametrize("k, n, block", [(64, 8, 16), (40, 5, 16), (33, 7, 32), (16, 1, 128)])
@pytest.mark.parametrize("lead", [(1,), (3,), (2, 5)])
@pytest.mark.parametrize("known", [True, False])
def test_matmul_nbits(same, bits, zero, k, n, block, lead, known):
    # onnxruntime has no kernel for 8 bits with zero points as floats.
    inputs = [data(*lead, k), *arrays(k, n, bits, block, zero)]
    while inputs[-1] is None:
        inputs.pop()
    constant = tuple(range(1, len(inputs))) if known else ()
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    same("MatMulNBits", inputs, known=constant, rtol=1e-4, atol=1e-4, **attrs)


@pytest.mark.parametrize("zero", ZEROS)
def test_groups_bias_and_flat_arrays(same, zero):
    k, n, block = 64, 6, 16
    weights, scales, points = arrays(k, n, 4, block, zero)
    groups, bias = RANDOM.integers(0, 4, k).astype(np.int32), data(n)
    attrs = {"K": k, "N": n, "block_size": block, "accuracy_level": 1}
    same("MatMulNBits", [data(3, k), weights, scales, points, None, bias], rtol=1e-4, atol=1e-4, **attrs)
    if zero != "packed":
        inputs = [data(3, k), weights, scales, points, groups]
        same("MatMulNBits", inputs, known=(4,), rtol=1e-4, atol=1e-4, **attrs)
    flat = None if points is None else points.reshape(-1)
    same("MatMulNBits", [data(3, k), weights, scales.reshape(-1), flat, None, bias], rtol=1e-4, atol=1e-4, **attrs)


def test_half_precision(run):
    k, n, block = 32, 4, 16
    x, (weights, scales, _) = data(3, k), arrays(k, n, 4, block, "none")
    attrs = {"K": k, "N": n, "block_size": block}
    (wide,) = run("MatMulNBits", [x.astype(np.float16).astype(np.float32), weights, scales], **attrs)
    halves = [x.astype(np.float16), weights, scales.astype(np.float16)]
    (found,) = run("MatMulNBits", halves, **attrs)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), wide, rtol=5e-3, atol=5e-3)


def test_weights_without_bytes_are_left_out(same):
    empty, bias = np.zeros((6, 0, 8), np.uint8), data(6)
    inputs = [data(3, 64), empty, np.zeros((6, 0), np.float32), None, None, bias]
    same("MatMulNBits", inputs, known=(1, 2), K=64, N=6, block_size=16)


def test_refusals(run):
    x, (weights, scales, _) = data(3, 32), arrays(32, 4, 4, 16, "none")
    attrs = {"K": 32, "N": 4, "block_size": 16}
    with pytest.raises(UnsupportedError, match=r"\(MatMulNBits\): weights of 3 bits in blocks of 16"):
        run("MatMulNBits", [x, weights, scales], bits=3, **attrs)
    with pytest.raises(UnsupportedError, match="g_idx with packed zero points"):
        run("MatMulNBits", [x, weights, scales, packed(4, 1), np.zeros(32, np.int32)], **attrs)
    with pytest.raises(UnsupportedError, match="weight_prepacked 1, an arrangement for one GPU"):
        run("MatMulNBits", [x, weights, scales], weight_prepacked=1, **attrs)
    with pytest.raises(UnsupportedError, match=r"expected packed weights of shape \[4, 2, 8\], got u8\[4,1,8\]"):
        run("MatMulNBits", [x, weights[:, :1], scales], **attrs)
