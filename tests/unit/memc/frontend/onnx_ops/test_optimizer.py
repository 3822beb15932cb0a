# SPDX-License-Identifier: Apache-2.0
"""Importing one training update: Momentum, Adagrad, Adam, against the standard's pseudo code."""

import numpy as np
import pytest

RANDOM = np.random.default_rng(7)
DOMAIN = "ai.onnx.preview.training"
RATE = np.array(0.1, np.float32)


def tensors(groups, sizes=(3, 2)):
    """`groups` rows, each with one positive array for each size, flattened in the order of the op's inputs."""
    return [RANDOM.uniform(0.5, 2, n).astype(np.float32) for _ in range(groups) for n in sizes]


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum(run_node, step, mode):
    x1, x2, g1, g2, v1, v2 = inputs = tensors(3)
    attrs = {"alpha": 0.9, "beta": 0.5, "norm_coefficient": 0.01, "mode": mode}
    found = run_node("Momentum", [RATE, np.array(step), *inputs], 4, domain=DOMAIN, **attrs)
    for i, (x, g, v) in enumerate([(x1, g1, v1), (x2, g2, v2)]):
        g = 0.01 * x + g
        new = 0.9 * v + (0.5 if step else 1) * g
        move = g + 0.9 * new if mode == "nesterov" else new
        np.testing.assert_allclose(found[i], x - 0.1 * move, rtol=1e-5)
        np.testing.assert_allclose(found[2 + i], new, rtol=1e-5)


def test_adagrad(run_node):
    x1, x2, g1, g2, h1, h2 = inputs = tensors(3)
    attrs = {"decay_factor": 0.1, "epsilon": 1e-3, "norm_coefficient": 0.01}
    found = run_node("Adagrad", [RATE, np.array(4), *inputs], 4, domain=DOMAIN, **attrs)
    for i, (x, g, h) in enumerate([(x1, g1, h1), (x2, g2, h2)]):
        g = 0.01 * x + g
        new = h + g * g
        np.testing.assert_allclose(found[i], x - 0.1 / 1.4 * g / (np.sqrt(new) + 1e-3), rtol=1e-5)
        np.testing.assert_allclose(found[2 + i], new, rtol=1e-5)


@pytest.mark.parametrize("step", [0, 5])
def test_adam(run_node, step):
    x1, x2, g1, g2, v1, v2, h1, h2 = inputs = tensors(4)
    attrs = {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-3, "norm_coefficient": 0.01, "norm_coefficient_post": 0.02}
    found = run_node("Adam", [RATE, np.array(step), *inputs], 6, domain=DOMAIN, **attrs)
    for i, (x, g, v, h) in enumerate([(x1, g1, v1, h1), (x2, g2, v2, h2)]):
        g = 0.01 * x + g
        v = 0.8 * v + 0.2 * g
        h = 0.95 * h + 0.05 * g * g
        rate = 0.1 * np.sqrt(1 - 0.95**step) / (1 - 0.8**step) if step else 0.1
        np.testing.assert_allclose(found[i], 0.98 * (x - rate * v / (np.sqrt(h) + 1e-3)), rtol=1e-5)
        np.testing.assert_allclose(found[2 + i], v, rtol=1e-5)
        np.testing.assert_allclose(found[4 + i], h, rtol=1e-5)
