# SPDX-License-Identifier: Apache-2.0
"""batch_norm_training: values against sums in f64, and the contract's edges."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError

RNG = np.random.default_rng(7)


def expected(x, scale, bias, epsilon):
    x = x.astype(np.float64)
    axes = tuple(d for d in range(x.ndim) if d != 1)
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean, variance = x.mean(axis=axes), x.var(axis=axes)
    inverse = (variance + epsilon) ** -0.5
    y = (x - mean.reshape(shape)) * (inverse * scale).reshape(shape) + bias.reshape(shape)
    return [y, mean, inverse, variance]


@pytest.mark.parametrize("dtype, rtol", [(np.float32, 1e-4), (np.float64, 1e-6), (np.float16, 2e-3)])
@pytest.mark.parametrize("shape", [(6, 3), (2, 4, 5), (3, 2, 4, 7), (2, 2, 3, 2, 3)])
def test_values(check_op, shape, dtype, rtol):
    # A mean far from zero, where the difference of squares would cancel.
    x = (RNG.standard_normal(shape) + 100).astype(dtype)
    scale, bias = (RNG.uniform(0.5, 2, shape[1]).astype(dtype) for _ in range(2))
    check_op(
        "batch_norm_training", [x, scale, bias], expected(x, scale, bias, 1e-5), rtol=rtol, atol=rtol, epsilon=1e-5
    )


def test_half_precision_takes_parameters_of_f32(make_op):
    x = np.zeros((2, 3, 4), ml_dtypes.bfloat16)
    op = make_op("batch_norm_training", [x, np.ones(3, np.float32), np.ones(3, np.float32)], epsilon=1e-5)
    assert [str(r.type) for r in op.results] == ["bf16[2,3,4]", "f32[3]", "f32[3]", "f32[3]"]


def test_contract(make_op):
    x, one = np.zeros((2, 3, 4), np.float32), np.ones(3, np.float32)
    with pytest.raises(OpError, match=r"expected a bias f32\[3\] or of the type of f32\[2,3,4\], got f32\[2\]"):
        make_op("batch_norm_training", [x, one, one[:2]], epsilon=1e-5)
    with pytest.raises(OpError, match=r"expected at least one element per channel, got f32\[0,3,4\]"):
        make_op("batch_norm_training", [x[:0], one, one], epsilon=1e-5)
    with pytest.raises(OpError, match="attribute `epsilon`"):
        make_op("batch_norm_training", [x, one, one])
