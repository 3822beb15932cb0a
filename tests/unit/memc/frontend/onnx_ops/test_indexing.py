# SPDX-License-Identifier: Apache-2.0
"""Importing gathers, scatters and position tensors, against onnxruntime and hand-written loops."""

import numpy as np
import onnx
import pytest

from memc.ir.errors import InvalidError

RANDOM = np.random.default_rng(0)
X = np.arange(48, dtype=np.float32).reshape(2, 4, 6)


def i64(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("index", [np.array([[0, -1], [1, 0]]), np.array(1), np.array(-2), np.zeros((0,), np.int64)])
@pytest.mark.parametrize("known", [True, False])
def test_gather(same_as_ort, index, known):
    if index.size == 0 and not known:
        return
    for axis in (0, 1, -1):
        same_as_ort("Gather", [X, index.astype(np.int64)], known=(1,) if known else (), axis=axis)


def test_gather_of_one_known_position_is_checked(run_node):
    with pytest.raises(InvalidError, match=r"index 4 is out of range \[-4, 4\)"):
        run_node("Gather", [X, np.array(4)], known=(1,), axis=1)


def test_gather_elements_and_nd(same_as_ort):
    same_as_ort("GatherElements", [X, RANDOM.integers(-4, 4, (2, 3, 6))], axis=1)
    same_as_ort("GatherElements", [X, RANDOM.integers(-6, 6, (2, 4, 9)).astype(np.int32)], axis=-1)
    same_as_ort("GatherND", [X, RANDOM.integers(-2, 2, (3, 2))])
    same_as_ort("GatherND", [X, RANDOM.integers(-4, 4, (2, 3, 2))], batch_dims=1)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters(same_as_ort, reduction):
    # Distinct indices, as the order of repeated ones is open.
    indices = np.array([[[3, 1, 0, -2, 2, 1]], [[0, 0, -1, 1, 2, 3]]])
    updates = RANDOM.integers(-9, 9, indices.shape).astype(np.float32)
    same_as_ort("ScatterElements", [X, indices, updates], axis=1, reduction=reduction)
    pairs = np.array([[0, 1], [-1, -2]])
    same_as_ort("ScatterND", [X, pairs, RANDOM.integers(-9, 9, (2, 6)).astype(np.float32)], reduction=reduction)


def test_scatter_of_opset_9(same_as_ort):
    same_as_ort("Scatter", [X[0], i64(1, 0)[None], np.float32([[-1, -2]])], opset=9, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("bounds", [(1, 10, 3), (10, 1, -4), (3, 3, 1), (5, 1, 1)])
def test_range(same_as_ort, dtype, bounds):
    same_as_ort("Range", [dtype(v) for v in bounds], known=(0, 1, 2))


def test_range_by_fractions(same_as_ort, run_node):
    same_as_ort("Range", [np.float32(0.5), np.float32(2), np.float32(0.25)], known=(0, 1, 2))
    with pytest.raises(InvalidError, match="a delta other than 0"):
        run_node("Range", [np.float32(0), np.float32(2), np.float32(0)], known=(0, 1, 2))


@pytest.mark.parametrize("k", [-5, -1, 0, 2, 9])
def test_eye_like(same_as_ort, k):
    same_as_ort("EyeLike", [np.zeros((3, 4), np.int32)], k=k)
    same_as_ort("EyeLike", [np.zeros((4, 3), np.float32)], k=k, dtype=onnx.TensorProto.INT64)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -4, -1, 0, 1, 7])
def test_trilu(same_as_ort, upper, k):
    extra = [] if k is None else [np.array(k)]
    same_as_ort("Trilu", [X, *extra], upper=upper, known=(1,))
    same_as_ort("Trilu", [X, *extra], upper=upper)
    same_as_ort("Trilu", [X > 20, *extra], upper=upper, known=(1,))


@pytest.mark.parametrize("axis", [None, 0, 1, -2])
@pytest.mark.parametrize("known", [(1,), (1, 2)])
def test_one_hot(same_as_ort, axis, known):
    attrs = {} if axis is None else {"axis": axis}
    indices = np.array([[0, 3, -1], [-4, 2, 1]])
    same_as_ort("OneHot", [indices, i64(4), np.float32([-1, 5])], known=known, **attrs)


def test_one_hot_out_of_range_is_off(run_node):
    (found,) = run_node("OneHot", [i64(4, -5, 1), np.array(4), np.int64([2, 9])], known=(1,))
    assert found.tolist() == [[2, 2, 2, 2], [2, 2, 2, 2], [2, 9, 2, 2]]


@pytest.mark.parametrize("batch, time", [(1, 0), (0, 1)])
def test_reverse_sequence(same_as_ort, batch, time):
    x = RANDOM.standard_normal((4, 3, 2) if batch else (3, 4, 2)).astype(np.float32)
    same_as_ort("ReverseSequence", [x, i64(1, 4, 2)], batch_axis=batch, time_axis=time)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(run_node, mode):
    cache = np.zeros((2, 5, 3), np.float32)
    update = np.arange(1, 13, dtype=np.float32).reshape(2, 2, 3)
    start = i64(1, 4) if mode == "circular" else i64(1, 3)
    (found,) = run_node("TensorScatter", [cache, update, start], opset=24, mode=mode)
    expected = cache.copy()
    for row in range(2):
        for step in range(2):
            expected[row, (start[row] + step) % 5] = update[row, step]
    assert found.tolist() == expected.tolist()
    (found,) = run_node("TensorScatter", [cache, update], opset=24, mode=mode)
    assert found[:, :2].tolist() == update.tolist() and not found[:, 2:].any()
