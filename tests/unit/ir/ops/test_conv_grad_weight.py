# SPDX-License-Identifier: Apache-2.0
"""conv_grad_weight: values against its definition."""

import numpy as np
import pytest

from memc.ir.errors import OpError

RNG = np.random.default_rng(3)


def some(*shape):
    return RNG.uniform(-1, 1, shape)


CONVOLUTIONS = [
    # x, w, strides, pads, dilations, group
    ((2, 3, 9), (4, 3, 3), (1,), (1, 1), (1,), 1),
    ((1, 4, 11), (6, 2, 4), (2,), (0, 3), (2,), 2),
    ((2, 3, 5, 4), (2, 3, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 2, 6, 7), (4, 2, 3, 2), (2, 1), (1, 0, 2, 1), (1, 2), 1),
    ((1, 2, 6, 6), (2, 2, 3, 3), (4, 3), (1, 1, 0, 0), (1, 1), 1),
    ((1, 4, 5, 5), (8, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    ((1, 6, 3, 3), (4, 3, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 2),
    ((1, 2, 3, 5, 3), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 0, 1, 1, 0), (1, 1, 2), 1),
]


def direct(x, g, w, strides, pads, dilations, group):
    """The weights' gradient by its definition, one product at a time."""
    found = np.zeros(w)
    rank = len(strides)
    per_group = w[0] // group
    for n, m, *out in np.ndindex(*g.shape):
        for c, *tap in np.ndindex(*w[1:]):
            at = [o * s + t * d - p for o, s, t, d, p in zip(out, strides, tap, dilations, pads[:rank])]
            if all(0 <= i < extent for i, extent in zip(at, x.shape[2:])):
                found[(m, c, *tap)] += g[(n, m, *out)] * x[(n, m // per_group * w[1] + c, *at)]
    return found


@pytest.mark.parametrize("x, w, strides, pads, dilations, group", CONVOLUTIONS)
def test_kernel_of_the_weights_gradient(check_op, x, w, strides, pads, dilations, group):
    rank = len(strides)
    out = [
        (x[2 + i] + pads[i] + pads[rank + i] - dilations[i] * (w[2 + i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    left, right = some(*x).astype(np.float32), some(x[0], w[0], *out).astype(np.float32)
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    expected = direct(left.astype(np.float64), right.astype(np.float64), w, strides, pads, dilations, group)
    check_op("conv_grad_weight", [left, right], [expected], rtol=1e-4, atol=1e-5, **attrs, kernel=w[2:])


def test_half_precision(check_op):
    x, g = np.full((1, 1, 4096), 0.1, np.float16), np.full((1, 1, 4096), 0.1, np.float16)
    expected = 4096 * float(np.float16(0.1)) ** 2
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "group": 1, "kernel": (1,)}
    check_op("conv_grad_weight", [x, g], [[[[expected]]]], rtol=1e-4, **attrs)


def test_contract(make_op):
    x, g = np.zeros((1, 4, 5), np.float32), np.zeros((1, 4, 5), np.float32)
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "kernel": (3,)}
    with pytest.raises(OpError, match=r"expected a gradient of at most \[3\] windows, got f32\[1,4,5\]"):
        make_op("conv_grad_weight", [x, g], **attrs, group=1)
    with pytest.raises(OpError, match="expected a group that divides 4 and 4 channels, got 3"):
        make_op("conv_grad_weight", [x, g[..., :3]], **attrs, group=3)
