# SPDX-License-Identifier: Apache-2.0
"""binary_cross_entropy and that of logits: kernels and reference against f64, also where f32 is 0 or 1."""

import numpy as np
import pytest

Z = np.array([-200, -90, -30, -17, -1, -1e-3, 0, 1e-3, 1, 17, 30, 90, 200])
P = np.array([0, 1e-30, 1e-6, 0.25, 0.5, 0.999, 1])


@pytest.mark.parametrize("dtype, rtol", [(np.float16, 2e-6), (np.float32, 2e-6), (np.float64, 1e-13)])
@pytest.mark.parametrize("t", [0, 0.25, 1])
def test_values(check_op, t, dtype, rtol):
    z = Z.astype(dtype)
    target = np.full_like(z, t)
    wide = z.astype(np.float64)
    expected = np.maximum(wide, 0) - wide * t + np.log1p(np.exp(-np.abs(wide)))
    check_op("binary_cross_entropy_with_logits", [z, target], [expected], rtol=rtol, atol=1e-30)
    p = P.astype(dtype)
    target, wide = np.full_like(p, t), p.astype(np.float64)
    with np.errstate(divide="ignore"):
        expected = -(t * np.maximum(np.log(wide), -100) + (1 - t) * np.maximum(np.log(1 - wide), -100))
    check_op("binary_cross_entropy", [p, target], [expected], rtol=max(rtol, 1e-6), atol=1e-6)
