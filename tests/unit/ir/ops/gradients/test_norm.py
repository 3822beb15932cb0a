# SPDX-License-Identifier: Apache-2.0
"""Gradients of softmax and of normalizations."""

import numpy as np
import pytest

from memc.passes.manager import PassManager

RNG = np.random.default_rng(6)


def some(*shape):
    return RNG.uniform(-1, 1, shape)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(check_op_gradient, name, axis):
    check_op_gradient(name, [some(2, 3, 4)], axis=axis)


@pytest.mark.parametrize("parameters", [0, 1, 2])
@pytest.mark.parametrize("axis, shape", [(1, (3, 4)), (2, (4,)), (1, (3, 1)), (0, (2, 1, 1))])
def test_layer_norm(check_op_gradient, axis, shape, parameters):
    inputs = [some(2, 3, 4), some(*shape), some(*shape)][: 1 + parameters]
    check_op_gradient("layer_norm", inputs, axis=axis, epsilon=1e-2)


@pytest.mark.parametrize("shape", [(5, 3), (3, 2, 4), (2, 3, 2, 2)])
def test_batch_norm(check_op_gradient, shape):
    # All results count, the statistics too.
    check_op_gradient("batch_norm_training", [some(*shape), some(shape[1]), some(shape[1])], epsilon=1e-2)


@pytest.mark.parametrize("result", [0, 1, 2, 3])
def test_one_result_of_batch_norm(check_gradient, result):
    def build(b, x):
        return b.multi("batch_norm_training", x, epsilon=1e-2).results[result]

    check_gradient(build, [some(3, 2, 4), some(2), some(2)])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_lrn(check_op_gradient, size):
    x = some(2, 4, 2, 3)
    check_op_gradient("channel_square_sum", [x], size=size)
    check_op_gradient("lrn", [x], size=size, alpha=0.5, beta=0.75, bias=1.0)


def test_batch_norm_keeps_nothing_but_its_operand(check_op_gradient):
    """Forward and backward are fused into kernels without another value of the operand's size between them."""
    x = some(4, 3, 8, 8)
    module = check_op_gradient("batch_norm_training", [x, some(3), some(3)], rtol=1e-5, epsilon=1e-2)
    module.main.returns = module.main.returns[1:]  # The gradients.
    PassManager.parse("materialize-returns,canonicalize,decompose,canonicalize,fuse").run(module)
    full = [v for op in module.main.ops for v in op.results if v.type.elements == x.size]
    assert full == module.main.returns[:1]
