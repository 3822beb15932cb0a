# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's activations."""

import numpy as np
import pytest

from memc.ir.errors import InvalidError, UnsupportedError

RANDOM = np.random.default_rng(1)


def data(*shape, scale=2.0):
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5), (1, 16), (3, 0)])
def test_gelu(same, shape):
    same("Gelu", [data(*shape)])
    same("BiasGelu", [data(*shape), data(shape[-1])])
    same("FastGelu", [data(*shape)], rtol=1e-4)
    same("FastGelu", [data(*shape), data(shape[-1])], rtol=1e-4)
    same("QuickGelu", [data(*shape)], rtol=1e-4)


@pytest.mark.parametrize("alpha", [1.702, 1.0, 0.5, -2.0])
def test_quick_gelu(same, alpha):
    same("QuickGelu", [data(4, 9)], alpha=alpha, rtol=1e-4)
    same("QuickGelu", [np.array([-60, 60, 0, -0.0, np.inf], np.float32)], alpha=alpha, rtol=1e-4)


def test_half_precision(run):
    x, bias = data(3, 8).astype(np.float16), data(8).astype(np.float16)
    (found,) = run("BiasGelu", [x, bias])
    wide = (x + bias).astype(np.float64)
    from math import erf

    wanted = wide / 2 * (1 + np.vectorize(erf)(wide / np.sqrt(2)))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-3, atol=1e-3)


def test_refusals(run):
    with pytest.raises(InvalidError, match=r"node `node` \(Gelu\): no attribute `approximate` in com.microsoft"):
        run("Gelu", [data(3)], approximate="tanh")
    with pytest.raises(InvalidError, match=r"node `node` \(BiasGelu\): expected 2 inputs, got 1"):
        run("BiasGelu", [data(3)])
    with pytest.raises(InvalidError, match=r"node `node` \(QuickGelu\): attribute `alpha`: expected one FLOAT"):
        run("QuickGelu", [data(3)], alpha=1)
    with pytest.raises(
        UnsupportedError, match=r"node `node` \(BiasGelu\): expected a bias for the last axis of f32\[2,3\]"
    ):
        run("BiasGelu", [data(2, 3), data(2)])
    with pytest.raises(UnsupportedError, match=r"node `node` \(Gelu\): expected floats, got i32\[3\]"):
        run("Gelu", [np.zeros(3, np.int32)])
