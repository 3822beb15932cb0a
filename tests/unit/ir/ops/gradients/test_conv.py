# SPDX-License-Identifier: Apache-2.0
"""Gradients of convolutions."""

import numpy as np
import pytest

RNG = np.random.default_rng(2)


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


@pytest.mark.parametrize("x, w, strides, pads, dilations, group", CONVOLUTIONS)
def test_conv(check_op_gradient, x, w, strides, pads, dilations, group):
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    check_op_gradient("conv", [some(*x), some(*w), some(w[0])], **attrs)


TRANSPOSED = [
    # x, w, strides, pads, dilations, group, output_padding
    ((2, 3, 4), (3, 2, 3), (1,), (1, 1), (1,), 1, (0,)),
    ((1, 4, 5), (4, 3, 4), (2,), (0, 1), (2,), 2, (1,)),
    ((1, 2, 3, 4), (2, 3, 3, 2), (2, 1), (1, 0, 0, 1), (1, 2), 1, (1, 0)),
    ((1, 2, 2, 3), (2, 2, 2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 1, (3, 2)),
    ((1, 2, 2, 3, 2), (2, 2, 2, 1, 2), (1, 2, 1), (0, 0, 1, 0, 0, 0), (1, 1, 1), 1, (0, 1, 0)),
]


@pytest.mark.parametrize("x, w, strides, pads, dilations, group, output_padding", TRANSPOSED)
def test_conv_transpose(check_op_gradient, x, w, strides, pads, dilations, group, output_padding):
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    inputs = [some(*x), some(*w), some(w[1] * group)]
    check_op_gradient("conv_transpose", inputs, **attrs, output_padding=output_padding)


@pytest.mark.parametrize("x, w, strides, pads, dilations, group", CONVOLUTIONS[1:5])
def test_second_derivative(check_op_gradient, x, w, strides, pads, dilations, group):
    out = tuple(
        (n + low + high - d * (k - 1) - 1) // s + 1
        for n, k, s, low, high, d in zip(x[2:], w[2:], strides, pads[: len(strides)], pads[len(strides) :], dilations)
    )
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    check_op_gradient("conv_grad_weight", [some(*x), some(x[0], w[0], *out)], **attrs, kernel=w[2:])


def test_col2im(check_op_gradient):
    attrs = {"kernel": (2, 3), "strides": (1, 2), "dilations": (2, 1), "pads": (1, 0, 0, 2)}
    check_op_gradient("col2im", [some(2, 12, 3 * 3)], shape=(4, 5), **attrs)
    check_op_gradient("col2im", [some(1, 1, 6)], shape=(6,), kernel=(1,), strides=(1,), dilations=(1,), pads=(0, 0))
