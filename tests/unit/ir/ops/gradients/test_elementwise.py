# SPDX-License-Identifier: Apache-2.0
"""Gradients of elementwise ops."""

import numpy as np
import pytest

RNG = np.random.default_rng(0)


def between(low, high, *shape):
    return RNG.uniform(low, high, shape)


UNARY = {
    "acos": (-0.9, 0.9),
    "acosh": (1.2, 3),
    "asin": (-0.9, 0.9),
    "atanh": (-0.9, 0.9),
    "log": (0.3, 3),
    "rsqrt": (0.3, 3),
    "sqrt": (0.3, 3),
    "reciprocal": (0.3, 3),
    **{
        name: (-1.4, 1.4)
        for name in ["asinh", "atan", "cos", "cosh", "erf", "exp", "neg", "sin", "sinh", "tan", "tanh"]
    },
}


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(check_op_gradient, name):
    check_op_gradient(name, [between(*UNARY[name], 3, 2)])


@pytest.mark.parametrize("name", ["abs", "floor", "ceil", "round", "trunc", "sign"])
def test_unary_with_corners(check_op_gradient, name):
    check_op_gradient(name, [np.array([-2.3, -0.7, 0.2, 1.6])])


@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 2)), ((2, 1, 3), (4, 1))]
)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "min", "max"])
def test_binary_broadcasts(check_op_gradient, name, shapes):
    check_op_gradient(name, [between(0.5, 2, *shape) for shape in shapes])


@pytest.mark.parametrize("name", ["mod", "fmod"])
def test_remainders(check_op_gradient, name):
    check_op_gradient(name, [np.array([5.3, -5.3, 2.2]), np.array([2.0, 1.5, -0.7])])


def test_a_base_that_is_not_positive(check_gradient):
    # The exponent is constant, as in x * x written as a power.
    check_gradient(lambda b, x: b.op("pow", [x[0], b.constant(np.array(2.0))]), [np.array([-1.5, 0.0, 2.0])])


@pytest.mark.parametrize("name", ["min", "max"])
def test_equal_operands_share_the_gradient(check_op_gradient, name):
    # A central difference takes the mean of both sides.
    check_op_gradient(name, [np.array([1.0, 2.0]), np.array([1.0, 3.0])])


ACTIVATIONS = [
    ("relu", {}),
    ("sigmoid", {}),
    ("leaky_relu", {"alpha": 0.1}),
    ("leaky_relu", {"alpha": -0.5}),
    ("elu", {"alpha": 1.3}),
    ("elu", {"alpha": -0.5}),
    ("gelu", {"approximate": "none"}),
    ("gelu", {"approximate": "tanh"}),
    ("silu", {}),
    ("hard_sigmoid", {"alpha": 0.3, "beta": 0.5}),
    ("softplus", {}),
    ("clip", {"min": -1.0, "max": 2.0}),
]


@pytest.mark.parametrize("name, attrs", ACTIVATIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_activations(check_op_gradient, name, attrs):
    check_op_gradient(name, [np.array([-3.1, -1.7, -0.6, -0.1, 0.2, 0.9, 1.8, 2.7])], **attrs)


def test_select(check_op_gradient):
    condition = np.array([[True], [False], [True]])
    check_op_gradient("select", [condition, between(-1, 1, 3, 2), between(-1, 1, 2)])


def test_a_value_used_twice(check_gradient):
    check_gradient(lambda b, x: b.op("mul", [x[0], b.op("add", [x[0], x[0]])]), [between(-1, 1, 3)])


def test_cast_there_and_back(check_gradient):
    from memc.ir.types import DType

    def build(b, x):
        narrow = b.op("cast", [x[0]], to=DType.F32)
        return b.op("cast", [b.op("mul", [narrow, narrow])], to=DType.F64)

    check_gradient(build, [np.array([0.5, 1.25, 2.0])], rtol=5e-2)
