# SPDX-License-Identifier: Apache-2.0
"""gather, gather_elements, gather_nd: values by hand-written loops, negative and bad indices."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition
from memc.runtime.codegen.debug import run_op

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(check_op, axis, index_type):
    indices = np.array([[0, -1], [2, -3]], index_type)
    moved = np.moveaxis(X, axis, 0)
    picked = np.stack([[moved[i] for i in row] for row in indices.tolist()])
    check_op("gather", [X, indices], [np.moveaxis(picked, (0, 1), (axis, axis + 1))], axis=axis)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.uint8, np.bool_])
def test_gather_element_types(check_op, dtype):
    check_op("gather", [np.array([1, 0, 1], dtype), np.array([2, 1, -3])], [[1, 0, 1]], axis=0)


def test_gather_shapes(check_op):
    check_op("gather", [X, np.array(-1)], [X[:, 3]], axis=1)
    check_op("gather", [X, np.zeros((2, 0), np.int32)], [np.zeros((3, 2, 0, 5))], axis=1)
    check_op("gather", [np.zeros((0, 3), np.float32), np.array([1])], [np.zeros((0, 1))], axis=1)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(check_op, axis):
    shape = [2, 3, 4]
    indices = (np.arange(24).reshape(shape) * 7) % (2 * X.shape[axis]) - X.shape[axis]
    expected = np.empty(shape)
    for place in np.ndindex(*shape):
        at = list(place)
        at[axis] = indices[place]
        expected[place] = X[tuple(at)]
    check_op("gather_elements", [X, indices], [expected], axis=axis)


def test_gather_elements_may_be_longer_than_the_data(check_op):
    check_op("gather_elements", [np.float32([[5, 6]]), np.array([[0, 1, 1, -2]])], [[[5, 6, 6, 5]]], axis=1)


def test_gather_nd(check_op):
    check_op("gather_nd", [X, np.array([[0, 1], [-1, -2]])], [[X[0, 1], X[2, 2]]], batch_dims=0)
    check_op("gather_nd", [X, np.array([2, 3, 4])], [X[2, 3, 4]], batch_dims=0)
    check_op("gather_nd", [X, np.array([[[1]], [[0]], [[-1]]])], [[[X[0, 1]], [X[1, 0]], [X[2, 3]]]], batch_dims=1)
    pairs = np.array([[[0, 1]], [[2, 3]], [[3, 4]]], np.int32)
    check_op("gather_nd", [X, pairs], [[[X[0, 0, 1]], [X[1, 2, 3]], [X[2, 3, 4]]]], batch_dims=1)
    check_op("gather_nd", [X, np.zeros((0, 2), np.int64)], [np.zeros((0, 5))], batch_dims=0)


@pytest.mark.parametrize("name, attrs", [("gather", {"axis": 0}), ("gather_elements", {"axis": 0})])
def test_an_index_out_of_range(make_op, name, attrs):
    data, indices = np.float32([1, 2, 3]), np.array([0, 3, -9])
    op = make_op(name, [data, indices], **attrs)
    with pytest.raises(OpError, match=r"index 3 is out of range \[-3, 3\)"):
        definition(op).evaluate([data, indices], op.attrs, [op.result.type])
    # Compiled code reads the nearest element, never foreign memory.
    assert run_op(op, [data, indices])[0].tolist() == [1, 3, 1]


@pytest.mark.parametrize(
    "name, data, indices, attrs, message",
    [
        ("gather", X, np.zeros(2, np.float32), {"axis": 0}, r"indices of type i32 or i64, got f32\[2\]"),
        ("gather", X, np.zeros(2, np.int64), {"axis": 3}, r"`axis` in \[0, 3\)"),
        ("gather", X[:0], np.zeros(2, np.int64), {"axis": 0}, r"elements to pick from in f32\[0,4,5\]"),
        ("gather_elements", X, np.zeros((3, 4, 6), np.int64), {"axis": 0}, r"within f32\[3,4,5\] on all axes but 0"),
        ("gather_elements", X, np.zeros(3, np.int64), {"axis": 0}, "within"),
        ("gather_nd", X, np.zeros((2, 4), np.int64), {"batch_dims": 0}, "expected 1 to 3 indices per element"),
        ("gather_nd", X, np.zeros((2, 1), np.int64), {"batch_dims": 1}, "expected 1 equal leading extents"),
        ("gather_nd", X, np.zeros((3, 1), np.int64), {"batch_dims": 2}, r"`batch_dims` in \[0, 2\), got 2"),
    ],
)
def test_broken_contracts(make_op, name, data, indices, attrs, message):
    with pytest.raises(OpError, match=message):
        make_op(name, [data, indices], **attrs)
