# SPDX-License-Identifier: Apache-2.0
"""Importing reductions, against onnxruntime and, where that differs from the standard, numpy."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(0)
KINDS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


def axes_of(opset, kind, axes):
    """The axes as input or attribute, as the opset has it."""
    if axes is None:
        return [], {}, ()
    if opset >= (13 if kind == "Sum" else 18):
        return [np.array(axes, np.int64)], {}, (1,)
    return [], {"axes": axes}, ()


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes, keepdims", [(None, 1), ([1], 0), ([0, -1], 1)])
def test_against_onnxruntime(same_as_ort, opset, kind, axes, keepdims):
    if axes and min(axes) < 0 and opset < 11:
        axes = [0, 2]
    x = RANDOM.uniform(0.5, 2, (2, 3, 4)).astype(np.float32)
    extra, attrs, known = axes_of(opset, kind, axes)
    same_as_ort(f"Reduce{kind}", [x, *extra], opset=opset, known=known, rtol=1e-4, keepdims=keepdims, **attrs)


@pytest.mark.parametrize("kind", ["Sum", "Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Max"])
def test_noop_with_empty_axes_does_the_elementwise_part(run_node, kind):
    x = np.array([[-1.5, 2.0], [3.0, -4.0]], np.float32)
    x = np.abs(x) if kind == "LogSum" else x
    elementwise = {"L1": np.abs, "L2": np.abs, "SumSquare": np.square, "LogSum": np.log}.get(kind, lambda v: v)
    for extra in ([], [np.zeros(0, np.int64)]):
        (found,) = run_node(f"Reduce{kind}", [x, *extra], known=(1,), noop_with_empty_axes=1)
        np.testing.assert_allclose(found, elementwise(x), rtol=1e-6)


@pytest.mark.parametrize(
    "kind, value",
    [("Sum", 0), ("Prod", 1), ("Max", -np.inf), ("Min", np.inf), ("L1", 0), ("L2", 0), ("SumSquare", 0),
     ("LogSum", -np.inf), ("LogSumExp", -np.inf)],
)  # fmt: skip
def test_empty_set(run_node, kind, value):
    (found,) = run_node(f"Reduce{kind}", [np.zeros((2, 0, 3), np.float32), np.array([1])], known=(1,))
    np.testing.assert_array_equal(found, np.full((2, 1, 3), value))


def test_log_sum_exp_neither_overflows_nor_makes_nan_of_infinities(run_node):
    x = np.array([[1e4, 1e4], [-np.inf, -np.inf], [np.inf, 0], [-1e4, -1e4]], np.float32)
    (found,) = run_node("ReduceLogSumExp", [x, np.array([1])], known=(1,), keepdims=0)
    np.testing.assert_allclose(found, [1e4 + np.log(2), -np.inf, np.inf, -1e4 + np.log(2)])


def test_half_precision_accumulates_in_f32(run_node):
    x = np.full((1, 4096), 20, np.float16)
    (found,) = run_node("ReduceMean", [x, np.array([1])], known=(1,))
    assert found.dtype == np.float16 and found == 20


def test_integers(run_node):
    x = np.array([[3, 4], [6, 8]], np.int32)
    (found,) = run_node("ReduceL2", [x, np.array([1])], known=(1,), keepdims=0)
    np.testing.assert_array_equal(found, np.array([5, 10], np.int32))


def test_scalar_input(run_node):
    (found,) = run_node("ReduceSumSquare", [np.array(3, np.float32)])
    assert found.shape == () and found == 9


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis, keepdims", [(0, 1), (1, 0), (2, 1)])
def test_arg(same_as_ort, opset, op_type, axis, keepdims):
    x = RANDOM.integers(0, 3, (2, 5, 3)).astype(np.float32)
    same_as_ort(op_type, [x], opset=opset, axis=axis, keepdims=keepdims)
    if opset >= 12:
        same_as_ort(op_type, [x], opset=opset, axis=axis - 3, keepdims=keepdims, select_last_index=1)


def test_unknown_axes_and_bad_axes_name_the_node(run_node):
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(UnsupportedError, match="node `node`.*bind it with --bind x1"):
        run_node("ReduceSum", [x, np.array([1])])
    with pytest.raises(UnsupportedError, match="axis from -2 to 1, got 2"):
        run_node("ReduceSum", [x, np.array([2])], known=(1,))


def test_bf16(run_node):
    x = np.array([[1, 3, 2], [-1, -3, np.nan]], ml_dtypes.bfloat16)
    for kind, wanted in (("Max", [3, np.nan]), ("Sum", [6, np.nan]), ("Mean", [2, np.nan])):
        (found,) = run_node(f"Reduce{kind}", [x, np.array([1])], known=(1,), keepdims=0, opset=18)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.astype(np.float32), np.array(wanted, np.float32))
    (found,) = run_node("ArgMax", [x], axis=1, keepdims=0)
    np.testing.assert_array_equal(found, [1, 2])
