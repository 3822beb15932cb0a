# SPDX-License-Identifier: Apache-2.0
"""Gradients of ops that pick, place, order or accumulate elements along an axis."""

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.ops.shared.casts import widen
from memc.ir.types import DType, TensorType
from memc.passes.training.backward_pass import append_gradients

RNG = np.random.default_rng(8)


def some(*shape):
    return RNG.uniform(-1, 1, shape)


def above(low, *shape):
    return RNG.uniform(low, low + 1, shape)


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


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_scatter_that_multiplies(check_op_gradient, zeros):
    """Also where factors are zero: the data, an update, two updates of a place, the data and an update."""
    data, updates = above(0.5, 3, 4), above(0.5, 2, 3)
    indices = np.array([[1, 1, 0], [1, -1, 2]])  # Two updates meet at [1, 0].
    nd = above(0.5, 3, 4)
    for place in ([], [(0, 0)], [(0, 0), (1, 0)], [(0, 1)])[zeros]:
        updates[place] = nd[place] = 0
    if zeros in (1, 3):
        data[1, 1] = data[2, 2] = 0
    check_op_gradient("scatter_elements", [data, indices, updates], axis=0, reduction="mul", rtol=1e-5)
    check_op_gradient("scatter_nd", [data, np.array([[1], [0], [1]]), nd], reduction="mul", rtol=1e-5)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_scatter_of_extrema(check_op_gradient, reduction):
    indices = np.array([[1, 1, 0], [1, -1, 2]])
    check_op_gradient("scatter_elements", [some(3, 4), indices, some(2, 3)], axis=0, reduction=reduction)
    check_op_gradient("scatter_nd", [some(3, 4), np.array([[1], [0], [1]]), some(3, 4)], reduction=reduction)
    check_op_gradient("scatter_nd", [some(3, 4), np.array([[1, 2], [0, 0], [1, 2]]), some(3)], reduction=reduction)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_elements_that_are_equal_share_a_gradient(reduction, dtype):
    """As in PyTorch 2: torch.ones(3).scatter_reduce(0, [0, 0, 2], [1, 1, 0 or 2], "amax") and its backward pass."""
    data = np.array([1, 1, 1], dtype)
    indices, other = np.array([0, 0, 2]), 0 if reduction == "max" else 2
    updates = np.array([1, 1, other], dtype)

    function = Function([])
    module = Module([function])
    for name, array in (("x", data), ("i", indices), ("u", updates), ("g", np.array([3, 5, 7], dtype))):
        kind = TensorType(DType.from_numpy(array.dtype), array.shape)
        function.params.append(Value(name, kind, role=Role.INPUT))
        module.weights[name] = array
    x, i, u, g = function.params
    b = IRBuilder(module, function, function.ops)
    weighed = b.op("mul", [b.op("scatter_elements", [x, i, u], axis=0, reduction=reduction), g])
    loss = b.op("reduce_sum", [widen(b, weighed)], axes=(0,), keepdims=False)
    found = append_gradients(module, function, loss, [x, u])
    function.returns, function.result_names = [found[x], found[u]], ["x", "u"]
    gradients = evaluate(module, dict(module.weights))
    assert gradients["x"].tolist() == [1, 5, 7] and gradients["u"].tolist() == [1, 1, 0]


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
