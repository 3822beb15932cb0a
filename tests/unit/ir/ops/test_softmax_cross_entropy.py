# SPDX-License-Identifier: Apache-2.0
"""softmax_cross_entropy: compiled kernels against logarithms in f64."""

import numpy as np
import pytest

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("dtype, rtol", [(np.float32, 1e-5), (np.float64, 1e-12), (np.float16, 1e-5)])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_values(check_op, rest, smoothing, dtype, rtol):
    logits = (RNG.standard_normal((6, 10, *rest)) * 20).astype(dtype)
    labels = RNG.integers(0, 10, (6, *rest))
    labels[1] = -7
    x = logits.astype(np.float64)
    total = np.log(np.exp(x - x.max()).sum(axis=1)) + x.max()
    picked = np.take_along_axis(x, np.maximum(labels, 0)[:, None], axis=1)[:, 0]
    aim = (1 - smoothing) * picked + smoothing * x.mean(axis=1)
    losses = np.where(labels == -7, 0, total - aim)
    attrs = {"ignore_index": -7, "label_smoothing": smoothing}
    check_op("softmax_cross_entropy", [logits, labels], [losses, total], rtol=rtol, atol=1e-4, **attrs)
