# SPDX-License-Identifier: Apache-2.0
"""layer_norm against a f64 computation."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(3)


def exact(x, axis, epsilon):
    x = x.astype(np.float64)
    axes = tuple(range(axis, x.ndim))
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_values(check_op, axis):
    x = RANDOM.standard_normal((2, 3, 8)).astype(np.float32)
    scale, bias = (RANDOM.standard_normal(x.shape[axis:]).astype(np.float32) for _ in range(2))
    plain = exact(x, axis, 1e-5)
    check_op("layer_norm", [x], [plain], rtol=1e-4, axis=axis, epsilon=1e-5)
    check_op("layer_norm", [x, scale], [plain * scale], rtol=1e-4, axis=axis, epsilon=1e-5)
    check_op("layer_norm", [x, scale, bias], [plain * scale + bias], rtol=1e-4, atol=1e-5, axis=axis, epsilon=1e-5)


def test_variance_does_not_cancel(check_op):
    x = (10000 + RANDOM.standard_normal((2, 64))).astype(np.float32)
    check_op("layer_norm", [x], [exact(x, 1, 1e-5)], rtol=1e-2, atol=2e-3, axis=1, epsilon=1e-5)


def test_half_precision_is_computed_in_f32(check_op):
    x = (300 * RANDOM.standard_normal((2, 512))).astype(np.float16)  # squares overflow f16
    scale = np.full((512,), 2, np.float16)
    check_op("layer_norm", [x, scale], [2 * exact(x, 1, 1e-5)], rtol=2e-3, atol=2e-3, axis=1, epsilon=1e-5)


def test_contract(make_op):
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(OpError, match="expected a scale that broadcasts"):
        make_op("layer_norm", [x, np.zeros((2,), np.float32)], axis=1, epsilon=1e-5)
    with pytest.raises(OpError, match="epsilon"):
        make_op("layer_norm", [x], axis=1)
