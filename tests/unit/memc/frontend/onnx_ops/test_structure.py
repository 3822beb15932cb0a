# SPDX-License-Identifier: Apache-2.0
"""Importing layout ops, against onnxruntime, in the forms of all opsets."""

import numpy as np
import onnx
import pytest

from memc.ir.errors import InvalidError, UnsupportedError

X = np.arange(48, dtype=np.float32).reshape(2, 4, 6)


def i64(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("shape", [(8, 6), (0, -1), (-1,), (2, 0, 3, 2), (0, 0, 0, 1), (-1, 1, 12)])
def test_reshape(same_as_ort, shape):
    same_as_ort("Reshape", [X, i64(*shape)], known=(1,))


def test_reshape_with_allowzero(run_node):
    (found,) = run_node("Reshape", [np.zeros((0, 3), np.float32), i64(3, 0)], known=(1,), allowzero=1)
    assert found.shape == (3, 0)
    (found,) = run_node("Reshape", [np.zeros((0, 3), np.float32), i64(0, -1)], known=(1,))
    assert found.shape == (0, 3)


@pytest.mark.parametrize("shape", [(5, -1), (-1, -1), (7,), (2, 4, 6, 0), (-2, 24)])
def test_reshape_that_does_not_fit(run_node, shape):
    with pytest.raises(InvalidError, match=r"`node` \(Reshape\)"):
        run_node("Reshape", [X, i64(*shape)], known=(1,))


def test_reshape_to_an_unknown_shape(run_node):
    with pytest.raises(UnsupportedError, match="--bind x1="):
        run_node("Reshape", [X, i64(8, 6)])


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_flatten(same_as_ort, axis):
    same_as_ort("Flatten", [X], opset=13, axis=axis)


@pytest.mark.parametrize("axes", [(1,), (3,), (1, 3), (-1,)])
def test_squeeze_and_unsqueeze(same_as_ort, axes):
    x = np.zeros((2, 1, 3, 1), np.float32)
    same_as_ort("Squeeze", [x, i64(*axes)], opset=13, known=(1,))
    same_as_ort("Squeeze", [x], opset=11, axes=axes)
    same_as_ort("Unsqueeze", [X, i64(*axes)], opset=13, known=(1,))
    same_as_ort("Unsqueeze", [X], opset=11, axes=axes)


def test_squeeze_of_everything(same_as_ort, run_node):
    same_as_ort("Squeeze", [np.zeros((2, 1, 3, 1), np.float32)], opset=13)
    with pytest.raises(InvalidError, match="expected extent 1 on axis 0"):
        run_node("Squeeze", [X, i64(0)], known=(1,))


@pytest.mark.parametrize("perm", [None, (0, 2, 1), (2, 0, 1), (0, 1, 2)])
def test_transpose(same_as_ort, perm):
    same_as_ort("Transpose", [X], **({} if perm is None else {"perm": perm}))


@pytest.mark.parametrize(
    "source, shape", [((3, 1), (2, 1, 6)), ((3, 1), (3, 4)), ((1,), (2, 2)), ((2, 3), (1,)), ((), (3,))]
)
def test_expand(same_as_ort, source, shape):
    x = np.arange(int(np.prod(source)), dtype=np.float32).reshape(source)
    same_as_ort("Expand", [x, i64(*shape)], known=(1,))


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (1, 3, 1), (0, 1, 1)])
def test_tile(same_as_ort, repeats):
    same_as_ort("Tile", [X, i64(*repeats)], known=(1,))


SLICES = [
    ((0,), (2,), None, None),
    ((1, 0), (4, 5), (1, 2), None),
    ((-2,), (1000,), (-1,), None),
    ((5, 3), (-7, 0), (2, 1), (-2, -1)),
    ((-1,), (-9223372036854775808,), (2,), (-1,)),
    ((3,), (3,), (1,), (1,)),
    ((0,), (9223372036854775807,), (2,), (4,)),
    ((10,), (20,), (1,), (1,)),
]


@pytest.mark.parametrize("starts, ends, axes, steps", SLICES)
def test_slice_by_inputs(same_as_ort, starts, ends, axes, steps):
    inputs = [X, i64(*starts), i64(*ends), None if axes is None else i64(*axes)]
    if steps is not None:
        inputs.append(i64(*steps))
    while inputs[-1] is None:
        inputs.pop()
    same_as_ort("Slice", inputs, opset=13, known=(1, 2, 3, 4))


def test_slice_by_attributes(same_as_ort):
    same_as_ort("Slice", [X], opset=9, starts=[1, -4], ends=[3, -1], axes=[1, 2])
    same_as_ort("Slice", [X], opset=9, starts=[0, 1], ends=[1, 1000])


def test_backward_slice_of_an_empty_axis(run_node):
    inputs = [np.zeros((0, 3), np.float32), i64(-1), i64(-1000), i64(0), i64(-1)]
    assert run_node("Slice", inputs, known=(1, 2, 3, 4))[0].shape == (0, 3)


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_split_by_sizes(same_as_ort, opset):
    if opset < 13:
        same_as_ort("Split", [X], outputs=3, opset=opset, axis=2, split=[1, 0, 5])
    else:
        same_as_ort("Split", [X, i64(1, 0, 5)], outputs=3, opset=opset, known=(1,), axis=2)


def test_split_evenly(same_as_ort):
    same_as_ort("Split", [X], outputs=2, opset=11, axis=1)
    same_as_ort("Split", [X], outputs=2, opset=13, axis=-1)


def test_split_with_an_empty_last_part(run_node):
    parts = run_node("Split", [X], outputs=4, axis=2, num_outputs=4)
    assert [p.shape for p in parts] == [(2, 4, 2)] * 3 + [(2, 4, 0)]
    assert np.array_equal(np.concatenate(parts, axis=2), X)


def test_split_with_a_smaller_last_part(run_node):
    parts = run_node("Split", [np.arange(7.0, dtype=np.float32)], outputs=3, num_outputs=3)
    assert [p.tolist() for p in parts] == [[0, 1, 2], [3, 4, 5], [6]]


def test_split_that_does_not_fit(run_node):
    with pytest.raises(InvalidError, match="add up to 6"):
        run_node("Split", [X, i64(1, 1)], outputs=2, known=(1,), axis=2)
    with pytest.raises(InvalidError, match="does not split into 3 equal parts"):
        run_node("Split", [X], outputs=3, opset=13, axis=1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(same_as_ort, axis):
    same_as_ort("Concat", [X, X + 100, X[:, :, :]], axis=axis)
    same_as_ort("Concat", [X], axis=axis)


def test_concat_with_empty_operands(run_node):
    (found,) = run_node("Concat", [X[:, :0], X, X[:, :0]], axis=1)
    assert found.tolist() == X.tolist()


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 1, 2, 0, 2, 1), (1, 0, 0, 0, 0, 0), (0, 3, 0, 0, 3, 5)])
def test_pad_modes(run_node, mode, pads):
    extra = {"constant_values": 2.5} if mode == "constant" else {}
    expected = np.pad(X, list(zip(pads[:3], pads[3:])), mode, **extra)
    if mode == "reflect" and pads[0]:
        pads = (0, *pads[1:])
        expected = np.pad(X, list(zip(pads[:3], pads[3:])), mode)
    value = [np.float32(2.5)] if mode == "constant" else []
    (found,) = run_node("Pad", [X, i64(*pads), *value], opset=19, known=(1, 2), mode=mode)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("known", [(1, 2), (1,)])
def test_pad_forms(same_as_ort, known):
    same_as_ort("Pad", [X, i64(0, 1, 2, 0, 2, 1), np.array(7, np.float32)], opset=13, known=known)
    same_as_ort("Pad", [X, i64(0, 1, 2, 0, 2, 1)], opset=13, known=known)
    same_as_ort("Pad", [X], opset=7, pads=[0, 1, 2, 0, 2, 1], value=3.0)
    same_as_ort("Pad", [X], opset=7, pads=[0, 1, 2, 0, 2, 1], mode="edge")
    same_as_ort("Pad", [X, i64(0, -1, 2, 0, -2, -3), np.array(7, np.float32)], opset=13, known=known)
    same_as_ort("Pad", [X, i64(2, 1), None, i64(-1)], opset=18, known=(1, 3))


def test_pad_that_removes_too_much(run_node):
    with pytest.raises(InvalidError, match="take away more than there is on axis 1"):
        run_node("Pad", [X, i64(0, -3, 0, 0, -3, 0)], opset=13, known=(1,))


@pytest.mark.parametrize("shape, axes", [((4, 2, 7), None), ((3, 9), (1, 2)), ((5,), (-1,))])
def test_center_crop_pad(run_node, shape, axes):
    (found,) = run_node("CenterCropPad", [X, i64(*shape)], known=(1,), **({} if axes is None else {"axes": axes}))
    expected = X
    for axis, extent in zip(axes or range(3), shape):
        spare = expected.shape[axis] - extent
        if spare >= 0:
            expected = np.take(expected, range(spare // 2, spare // 2 + extent), axis=axis)
        else:
            widths = [(0, 0)] * 3
            widths[axis] = (-spare // 2, -spare - (-spare // 2))
            expected = np.pad(expected, widths)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(same_as_ort, mode):
    same_as_ort("DepthToSpace", [np.arange(96, dtype=np.float32).reshape(1, 8, 3, 4)], blocksize=2, mode=mode)


def test_space_to_depth(same_as_ort, run_node):
    same_as_ort("SpaceToDepth", [np.arange(96, dtype=np.float32).reshape(1, 2, 6, 8)], blocksize=2)
    with pytest.raises(InvalidError, match="multiples of blocksize 5"):
        run_node("SpaceToDepth", [np.zeros((1, 2, 6, 8), np.float32)], blocksize=5)


def test_constant_of_shape(run_node):
    value = onnx.numpy_helper.from_array(np.array([7], np.int32))
    (found,) = run_node("ConstantOfShape", [i64(2, 3)], known=(0,), value=value)
    assert found.dtype == np.int32 and found.tolist() == [[7] * 3] * 2
    (found,) = run_node("ConstantOfShape", [i64(0)], known=(0,))
    assert found.dtype == np.float32 and found.shape == (0,)
    (found,) = run_node("ConstantOfShape", [np.zeros(0, np.int64)], known=(0,))
    assert found.shape == ()
