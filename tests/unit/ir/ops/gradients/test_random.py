# SPDX-License-Identifier: Apache-2.0
"""Gradients of ops that draw random numbers."""

import numpy as np


def test_dropout_has_the_mask_of_the_forward_pass(check_op_gradient):
    x = np.random.default_rng(12).uniform(-1, 1, (4, 5))
    module = check_op_gradient("dropout", [x, np.array(77)], ratio=0.4, stream=2)
    forward, backward = (op for op in module.main.ops if op.name == "dropout")
    assert backward.operands[1] is forward.operands[1] and backward.attrs == forward.attrs
    # The mask is made anew: the backward pass reads nothing of the forward one but the seed.
    assert forward.results[0] not in backward.operands
