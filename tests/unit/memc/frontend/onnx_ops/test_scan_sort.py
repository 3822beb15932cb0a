# SPDX-License-Identifier: Apache-2.0
"""Importing CumSum, CumProd, TopK and Compress."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("exclusive, reverse", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("axis", [0, -1])
def test_cumsum(same_as_ort, exclusive, reverse, axis):
    x = RANDOM.standard_normal((3, 4)).astype(np.float32)
    same_as_ort("CumSum", [x, np.array(axis)], known=(1,), opset=14, exclusive=exclusive, reverse=reverse)


def test_cumprod_of_halves(run_node):
    (found,) = run_node("CumProd", [np.array([1, 2, 3], np.float16), np.array(0)], opset=26, known=(1,))
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, [1, 2, 6])


@pytest.mark.parametrize("opset", [9, 10, 11, 24])
@pytest.mark.parametrize("axis", [0, 1])
def test_top_k(run_node, opset, axis):
    x = RANDOM.integers(0, 5, (4, 6)).astype(np.float32)
    k = {"k": 3} if opset < 10 else {}
    inputs = [x] if opset < 10 else [x, np.array([3])]
    values, positions = run_node("TopK", inputs, 2, opset=opset, known=(1,), axis=axis, **k)
    order = np.take(np.argsort(-x, axis=axis, kind="stable"), range(3), axis=axis)
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_against_onnxruntime(same_as_ort, largest):
    x = RANDOM.permutation(24).reshape(4, 6).astype(np.float32)
    same_as_ort("TopK", [x, np.array([4])], 2, known=(1,), largest=largest)


def test_top_k_with_only_positions_or_too_large_k(run_node):
    (positions,) = run_node("TopK", [np.array([1, 3, 2], np.float32), np.array([1])], ["", "y1"], known=(1,))
    np.testing.assert_array_equal(positions, [1])
    with pytest.raises(UnsupportedError, match="k from 0 to 3, got 4"):
        run_node("TopK", [np.array([1, 3, 2], np.float32), np.array([4])], 2, known=(1,))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(run_node, axis):
    x, condition = RANDOM.standard_normal((3, 4)).astype(np.float32), np.array([False, True, True])
    (found,) = run_node("Compress", [x, condition], known=(1,), **({} if axis is None else {"axis": axis}))
    np.testing.assert_array_equal(found, np.compress(condition, x, axis=axis))
