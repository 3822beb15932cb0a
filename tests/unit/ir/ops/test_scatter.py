# SPDX-License-Identifier: Apache-2.0
"""scatter_elements, scatter_nd: values by hand-written loops, repeated indices, all reductions."""

import operator

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition
from memc.runtime.codegen.debug import run_op

COMBINE = {"none": lambda old, new: new, "add": operator.add, "mul": operator.mul, "max": max, "min": min}
RANDOM = np.random.default_rng(0)


def scattered_elements(data, indices, updates, axis, reduction):
    result = data.astype(np.float64)
    for place in np.ndindex(*indices.shape):
        at = list(place)
        at[axis] = indices[place]
        result[tuple(at)] = COMBINE[reduction](result[tuple(at)], float(updates[place]))
    return result


def scattered_nd(data, indices, updates, reduction):
    result = data.astype(np.float64)
    for place in np.ndindex(*indices.shape[:-1]):
        target = result[tuple(indices[place])]
        new = updates[place].astype(np.float64)
        result[tuple(indices[place])] = np.vectorize(COMBINE[reduction])(target, new) if target.size else target
    return result


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int32])
@pytest.mark.parametrize("reduction", list(COMBINE))
@pytest.mark.parametrize("axis", [0, 1])
def test_elements(check_op, axis, reduction, dtype):
    data = RANDOM.integers(-4, 5, (3, 4)).astype(dtype)
    indices = RANDOM.integers(-data.shape[axis], data.shape[axis], (2, 3) if axis else (5, 3))
    updates = RANDOM.integers(-3, 4, indices.shape).astype(dtype)
    expected = scattered_elements(data, indices, updates, axis, reduction)
    check_op("scatter_elements", [data, indices, updates], [expected], axis=axis, reduction=reduction)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("reduction", list(COMBINE))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_nd(check_op, depth, reduction, dtype):
    data = RANDOM.integers(-4, 5, (3, 2, 4)).astype(dtype)
    extents = np.array(data.shape[:depth])
    indices = RANDOM.integers(-extents, extents, (2, 3, depth)).astype(np.int32)
    updates = RANDOM.integers(-3, 4, (2, 3, *data.shape[depth:])).astype(dtype)
    expected = scattered_nd(data, indices, updates, reduction)
    check_op("scatter_nd", [data, indices, updates], [expected], reduction=reduction)


def test_the_last_of_several_updates_wins(check_op):
    data, indices = np.zeros(3, np.float32), np.array([1, 1, -2])
    check_op("scatter_elements", [data, indices, np.float32([5, 6, 7])], [[0, 7, 0]], axis=0, reduction="none")
    check_op("scatter_nd", [data, indices[:, None], np.float32([5, 6, 7])], [[0, 7, 0]], reduction="none")


def test_booleans(check_op):
    data, updates = np.array([True, False, False]), np.array([False, True])
    check_op("scatter_elements", [data, np.array([0, 2]), updates], [[False, False, True]], axis=0, reduction="none")


def test_sums_of_half_precision_do_not_stall(make_op):
    # Added one by one in f16, 2048 would swallow every further 1.
    data, indices, updates = np.zeros(1, np.float16), np.zeros(3000, np.int64), np.ones(3000, np.float16)
    op = make_op("scatter_elements", [data, indices, updates], axis=0, reduction="add")
    assert run_op(op, [data, indices, updates])[0].tolist() == [3000]
    (reference,) = definition(op).evaluate([data, indices, updates], op.attrs, [op.result.type])
    assert reference.tolist() == [3000]


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_no_updates_and_no_data(check_op, reduction):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    none = np.zeros((0, 3), np.float32)
    check_op("scatter_elements", [data, none.astype(np.int64), none], [data], axis=0, reduction=reduction)
    check_op("scatter_nd", [data, np.zeros((0, 1), np.int64), none], [data], reduction=reduction)
    check_op("scatter_elements", [none, none.astype(np.int64), none], [none], axis=0, reduction=reduction)
    empty = np.zeros((2, 0), np.float32)
    check_op("scatter_nd", [empty, np.array([[1]]), empty[:1]], [empty], reduction=reduction)


@pytest.mark.parametrize(
    "name, shapes, attrs, message",
    [
        ("scatter_elements", [(3, 4), (2, 4), (2, 3)], {"axis": 0}, r"updates of the indices' shape, got i64\[2,4\]"),
        ("scatter_elements", [(3, 4), (2, 5), (2, 5)], {"axis": 0}, r"indices within f32\[3,4\] on all axes but 0"),
        ("scatter_elements", [(3, 4), (2, 4), (2, 4)], {"axis": 2}, r"`axis` in \[0, 2\)"),
        ("scatter_nd", [(3, 4), (2, 3), (2,)], {}, "expected 1 to 2 indices per update"),
        ("scatter_nd", [(3, 4), (2, 1), (2, 3)], {}, r"updates of shape \[2, 4\]"),
    ],
)
def test_broken_contracts(make_op, name, shapes, attrs, message):
    data, indices, updates = (np.zeros(s, t) for s, t in zip(shapes, (np.float32, np.int64, np.float32)))
    with pytest.raises(OpError, match=message):
        make_op(name, [data, indices, updates], reduction="none", **attrs)


def test_unknown_reduction_and_index_out_of_range(make_op):
    data, indices = np.zeros(3, np.float32), np.array([0, 3])
    with pytest.raises(OpError, match="`reduction` to be one of none, add, mul, max, min, got 'mean'"):
        make_op("scatter_elements", [data, indices, data[:2]], axis=0, reduction="mean")
    op = make_op("scatter_elements", [data, indices, data[:2]], axis=0, reduction="none")
    with pytest.raises(OpError, match=r"index 3 is out of range \[-3, 3\)"):
        definition(op).evaluate([data, indices, data[:2]], op.attrs, [op.result.type])
