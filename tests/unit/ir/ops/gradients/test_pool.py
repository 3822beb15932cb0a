# SPDX-License-Identifier: Apache-2.0
"""Gradients of pools."""

import numpy as np
import pytest

RNG = np.random.default_rng(4)

WINDOWS = [
    # spatial, kernel, strides, pads, dilations
    ((9,), (3,), (2,), (1, 1), (1,)),
    ((7, 6), (2, 3), (1, 2), (0, 0, 0, 0), (1, 1)),
    ((7, 6), (3, 2), (2, 2), (1, 0, 2, 1), (2, 1)),
    ((6, 6), (2, 2), (3, 3), (0, 0, 0, 0), (1, 1)),
    ((3, 4), (3, 4), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((3, 4, 3), (2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2)),
]


def attrs_of(geometry):
    return dict(zip(("kernel", "strides", "pads", "dilations"), geometry[1:]))


def distinct(*shape):
    """Elements far enough apart that finite differences do not change their order."""
    return RNG.permutation(np.linspace(-1, 1, int(np.prod(shape)))).reshape(shape)


@pytest.mark.parametrize("geometry", WINDOWS)
@pytest.mark.parametrize("kind", ["max", "sum"])
def test_max_and_sum(check_op_gradient, kind, geometry):
    check_op_gradient(f"{kind}_pool", [distinct(1, 2, *geometry[0])], **attrs_of(geometry))


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("geometry", WINDOWS)
def test_average(check_op_gradient, geometry, count_include_pad, extra):
    attrs = {**attrs_of(geometry), "count_include_pad": count_include_pad, "extra": (extra,) * len(geometry[0])}
    check_op_gradient("avg_pool", [distinct(1, 2, *geometry[0])], **attrs)


def test_one_window_over_everything_needs_no_scattering(check_op_gradient):
    geometry = ((3, 4), (3, 4), (1, 1), (0, 0, 0, 0), (1, 1))
    module = check_op_gradient("sum_pool", [distinct(2, 2, 3, 4)], **attrs_of(geometry))
    assert "sum_pool_grad" not in [op.name for op in module.main.ops]


def test_second_derivative_of_a_sum(check_op_gradient):
    attrs = attrs_of(WINDOWS[2])
    check_op_gradient("sum_pool_grad", [distinct(1, 2, 3, 3)], **attrs, shape=(7, 6))
