# SPDX-License-Identifier: Apache-2.0
"""Gradients of reductions, products and ops that move elements."""

import numpy as np
import pytest

RNG = np.random.default_rng(1)


def some(*shape):
    return RNG.uniform(-1, 1, shape)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
def test_reductions(check_op_gradient, kind, axes, keepdims):
    check_op_gradient(f"reduce_{kind}", [some(2, 3, 4)], axes=axes, keepdims=keepdims)


@pytest.mark.parametrize("row", [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]])
def test_product_with_zeros(check_op_gradient, row):
    check_op_gradient("reduce_prod", [np.array([row])], axes=(1,), keepdims=False)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("lead", [((), ()), ((2,), (2,)), ((2, 3), ()), ((), (2,)), ((2, 1), (1, 3))])
def test_matmul(check_op_gradient, lead, transpose_a, transpose_b):
    x = some(*lead[0], *((4, 3) if transpose_a else (3, 4)))
    y = some(*lead[1], *((2, 4) if transpose_b else (4, 2)))
    check_op_gradient("matmul", [x, y], transpose_a=transpose_a, transpose_b=transpose_b)


def test_moves(check_op_gradient):
    check_op_gradient("reshape", [some(2, 6)], shape=(3, 4))
    check_op_gradient("transpose", [some(2, 3, 4)], perm=(2, 0, 1))
    check_op_gradient("broadcast", [some(3, 1)], shape=(2, 3, 4))
    check_op_gradient("copy", [some(3)])
    check_op_gradient("concat", [some(2, 1), some(2, 3), some(2, 2)], axis=1)


@pytest.mark.parametrize(
    "starts, stops, steps",
    [((0, 1), (2, 4), (1, 1)), ((1, 0), (3, 5), (1, 2)), ((2, 4), (-1, 0), (-1, -2)), ((0, 2), (3, 3), (1, 3))],
)
def test_slice(check_op_gradient, starts, stops, steps):
    check_op_gradient("slice", [some(3, 5)], starts=starts, stops=stops, steps=steps)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(check_op_gradient, mode):
    check_op_gradient("pad", [some(3, 4)], low=(1, 2), high=(0, 3), mode=mode, value=0.5)


def cut(b, x, start, stop):
    return b.op("slice", [x], starts=(0, start), stops=(2, stop), steps=(1, 1))


def test_gradients_of_slices_that_tile_are_one_concat(check_gradient):
    def build(b, x):
        parts = [cut(b, x[0], 0, 2), cut(b, x[0], 4, 6), cut(b, x[0], 2, 4)]
        return b.op("mul", [b.op("mul", parts[:2]), parts[2]])

    module = check_gradient(build, [some(2, 6)])
    assert [op.name for op in module.main.ops].count("concat") == 1


def test_gradients_of_slices_that_overlap_are_added(check_gradient):
    module = check_gradient(lambda b, x: b.op("mul", [cut(b, x[0], 0, 3), cut(b, x[0], 2, 5)]), [some(2, 6)])
    assert "concat" not in [op.name for op in module.main.ops]
