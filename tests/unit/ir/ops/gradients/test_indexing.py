# SPDX-License-Identifier: Apache-2.0
"""Gradients of ops that pick, place, order or accumulate elements along an axis."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RNG = np.random.default_rng(8)


def some(*shape):
    return RNG.uniform(-1, 1, shape)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("indices", [[[2, 0], [-1, 2]], [1, 1, 1], 0, np.zeros((0,), int)], ids=str)
def test_gather_adds_up_what_was_picked_twice(check_op_gradient, indices, axis):
    check_op_gradient("gather", [some(3, 3, 4), np.asarray(indices)], axis=axis)


def test_gather_grad(check_op_gradient):
    check_op_gradient("gather_grad", [np.array([0, 2, 2, -3]), some(2, 4, 3)], axis=1, extent=3)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements(check_op_gradient, axis):
    check_op_gradient("gather_elements", [some(3, 4), RNG.integers(-3, 3, (3, 3))], axis=axis)


@pytest.mark.parametrize("batch_dims, shape", [(0, (4, 2)), (0, (3, 1)), (1, (2, 4, 2)), (2, (2, 3, 1))])
def test_gather_nd(check_op_gradient, batch_dims, shape):
    check_op_gradient("gather_nd", [some(2, 3, 3), RNG.integers(-2, 2, shape)], batch_dims=batch_dims)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_elements(check_op_gradient, reduction):
    # The last update of a place wins, so the first of two has no gradient.
    indices = np.array([[1, 1, 0], [2, -1, 2]])
    check_op_gradient("scatter_elements", [some(3, 4), indices, some(2, 3)], axis=1, reduction=reduction)


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("depth", [1, 2])
def test_scatter_nd(check_op_gradient, depth, reduction):
    indices = np.array([[1, 2], [0, -1], [1, 2]])[:, :depth]
    updates = some(3, *(3, 2)[depth - 1 :])
    check_op_gradient("scatter_nd", [some(3, 3, 2), indices, updates], reduction=reduction)


def test_scatter_that_multiplies(check_op_gradient):
    with pytest.raises(UnsupportedError, match="expected reduction none or add for a gradient, got mul"):
        check_op_gradient("scatter_nd", [some(3), np.array([[1]]), some(1)], reduction="mul")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("row", [[0.5, -2, 3, 1.5], [0.5, 0, 3, 2], [2, 0, 3, 0], [0, 0, 1, 2]])
def test_running_sums_and_products(check_op_gradient, row, exclusive, reverse):
    x = np.array([row, some(4)], dtype=float)
    for name in ("cumsum", "cumprod"):
        check_op_gradient(name, [x], axis=1, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("axis, k", [(0, 2), (1, 4), (1, 1)])
def test_top_k(check_op_gradient, axis, k, largest):
    check_op_gradient("top_k", [some(3, 4)], axis=axis, k=k, largest=largest)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_determinants(check_op_gradient, size):
    check_op_gradient("det", [some(2, size, size)])


def test_determinant_of_a_singular_matrix(check_op_gradient):
    check_op_gradient("det", [np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])])
