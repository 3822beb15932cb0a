# SPDX-License-Identifier: Apache-2.0
"""Importing Softmax, LogSoftmax, Hardmax: flattening before opset 13, one axis since."""

import numpy as np
import pytest

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_against_onnxruntime(same_as_ort, op_type, opset, axis):
    x = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
    same_as_ort(op_type, [x], opset=opset, **({} if axis is None else {"axis": axis}))


def test_flattening_semantics(run_node):
    x = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
    (old,) = run_node("Softmax", [x], opset=11, axis=1)
    (new,) = run_node("Softmax", [x], opset=13, axis=1)
    np.testing.assert_allclose(old.sum(axis=(1, 2)), [1, 1], rtol=1e-6)
    np.testing.assert_allclose(new.sum(axis=1), np.ones((2, 4)), rtol=1e-6)


def test_hardmax_takes_the_first_of_ties(run_node):
    (found,) = run_node("Hardmax", [np.array([[1, 3, 3]], np.float32)], opset=13)
    np.testing.assert_array_equal(found, [[0, 1, 0]])
