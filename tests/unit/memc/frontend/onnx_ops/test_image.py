# SPDX-License-Identifier: Apache-2.0
"""Importing Resize, Upsample and the sampling ops, against onnxruntime and onnx's reference."""

import numpy as np
import pytest
from onnx.reference.ops.op_col2im import col2im_naive_implementation

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(0)
SCALES = np.array([1, 1, 2.0, 1.5], np.float32)


def random(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [(6, 8), (2, 3), (9, 1)])
def test_resize_to_sizes(same_as_ort, mode, coordinates, size):
    sizes = np.array([1, 2, *size], np.int64)
    inputs = [random(1, 2, 4, 4), None, None, sizes]
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    same_as_ort("Resize", inputs, opset=13, known=(3,), rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize("rule", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest_rules(same_as_ort, rule):
    inputs = [random(1, 1, 4, 4), None, SCALES]
    same_as_ort("Resize", inputs, opset=13, known=(2,), mode="nearest", nearest_mode=rule)


def test_cubic_without_the_outside(same_as_ort):
    inputs = [random(1, 1, 4, 4), None, SCALES]
    same_as_ort(
        "Resize",
        inputs,
        opset=13,
        known=(2,),
        rtol=1e-4,
        atol=1e-5,
        mode="cubic",
        exclude_outside=1,
        cubic_coeff_a=-0.5,
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_crop_and_resize(same_as_ort, mode):
    roi = np.array([0, 0, 0.37, -0.23, 1, 1, 0.66, 1.19], np.float32)
    inputs = [random(1, 1, 4, 4), roi, None, np.array([1, 1, 3, 5], np.int64)]
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    same_as_ort("Resize", inputs, opset=13, known=(1, 3), rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [7, 9])
def test_upsample(same_as_ort, opset, mode):
    x, scales = random(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)
    if opset < 9:
        same_as_ort("Upsample", [x], opset=opset, rtol=1e-4, atol=1e-5, mode=mode, scales=scales.tolist())
    else:
        same_as_ort("Upsample", [x, scales], opset=opset, known=(1,), rtol=1e-4, atol=1e-5, mode=mode)


@pytest.mark.parametrize("scale", [0.6, 0.5, 2.0])
def test_resize_before_coordinates_were_an_attribute(same_as_ort, scale):
    scales = np.array([1, 1, scale, 2], np.float32)
    same_as_ort("Resize", [random(1, 1, 5, 4), scales], opset=10, known=(1,), mode="nearest")


def test_resizing_bytes_rounds_and_saturates(run_node):
    x = np.array([[[[0, 255]]]], np.uint8)
    (y,) = run_node("Resize", [x, None, None, np.array([1, 1, 1, 4], np.int64)], opset=19, known=(3,), mode="linear")
    assert y.dtype == np.uint8 and y.reshape(-1).tolist() == [0, 64, 191, 255]


def test_resize_that_changes_nothing_is_no_op(run_node):
    x = random(1, 1, 3, 3)
    (y,) = run_node("Resize", [x, None, np.ones(4, np.float32)], opset=13, known=(2,), mode="cubic")
    np.testing.assert_array_equal(y, x)


def test_sizes_must_be_known(run_node):
    with pytest.raises(UnsupportedError, match="--bind x3=VALUE"):
        run_node("Resize", [random(1, 1, 3, 3), None, None, np.array([1, 1, 6, 6], np.int64)], opset=13)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(same_as_ort, mode, padding, align):
    grid = RANDOM.uniform(-2.5, 2.5, (2, 5, 6, 2)).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    same_as_ort("GridSample", [random(2, 3, 4, 5), grid], opset=16, rtol=1e-3, atol=1e-4, **attrs)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 2, 3, 2, 4)])
def test_affine_grid(same_as_ort, size, align):
    axes = len(size) - 2
    theta = random(size[0], axes, axes + 1)
    inputs = [theta, np.array(size, np.int64)]
    same_as_ort("AffineGrid", inputs, opset=20, known=(1,), rtol=1e-4, atol=1e-5, align_corners=align)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 16])
def test_roi_align(same_as_ort, opset, mode):
    rois = np.array([[0, 0, 3, 4], [-2, 1, 9, 12], [2.5, 2, 2.6, 2.1]], np.float32)
    inputs = [random(2, 3, 6, 7), rois, np.array([0, 1, 1], np.int64)]
    attrs = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.8, "mode": mode}
    same_as_ort("RoiAlign", inputs, opset=opset, rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 16])
def test_roi_align_with_samples_by_size(same_as_ort, opset, mode):
    """Also of boxes that are far larger than the map, lie beyond it, or have no extent."""
    rois = [
        [0, 0, 3, 4],
        [-2, 1, 9, 12],
        [2.5, 2, 2.6, 2.1],
        [-90, -35, 60, 48],
        [1, 2, 40, 3],
        [50, 60, 70, 80],
        [3, 3, 1, 1],
    ]
    rois = np.array(rois, np.float32)
    inputs = [random(2, 3, 6, 7), rois, np.array([0, 1, 1, 0, 1, 0, 1], np.int64)]
    for scale, size in ((1.0, (2, 3)), (0.7, (1, 1)), (0.5, (5, 2))):
        attrs = {"mode": mode, "output_height": size[0], "output_width": size[1], "spatial_scale": scale}
        same_as_ort("RoiAlign", inputs, opset=opset, rtol=1e-4, atol=1e-5, sampling_ratio=0, **attrs)


def test_roi_align_takes_no_negative_number_of_samples(run_node):
    inputs = [random(1, 1, 4, 4), np.array([[0, 0, 3, 3]], np.float32), np.array([0], np.int64)]
    with pytest.raises(UnsupportedError, match="expected a sampling_ratio from 0 on, got -1"):
        run_node("RoiAlign", inputs, opset=16, sampling_ratio=-1)


def test_deform_conv_without_shifts_is_a_convolution(run_node):
    x, w, b = random(2, 4, 6, 5), random(6, 2, 3, 3), random(6)
    attrs = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2}
    (wanted,) = run_node("Conv", [x, w, b], opset=19, **attrs)
    offset = np.zeros((2, 2 * 2 * 9, *wanted.shape[2:]), np.float32)
    (found,) = run_node("DeformConv", [x, w, offset, b], opset=19, offset_group=2, **attrs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_deform_conv_shifts_and_masks(run_node):
    x, w = random(1, 1, 4, 4), np.ones((1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 2, 4, 4), np.float32)
    offset[0, 0], offset[0, 1] = 1, 0.5
    mask = np.full((1, 1, 4, 4), 2, np.float32)
    (found,) = run_node("DeformConv", [x, w, offset, None, mask], opset=19)
    beyond = np.pad(x[0, 0], ((0, 1), (0, 1)))
    np.testing.assert_allclose(found[0, 0], beyond[1:, :4] + beyond[1:, 1:], rtol=1e-5, atol=1e-6)


def test_col2im(run_node):
    data = random(1, 2 * 6, 12)
    image, block = np.array([5, 5], np.int64), np.array([2, 3], np.int64)
    (found,) = run_node("Col2Im", [data, image, block], opset=18, known=(1, 2))
    wanted = [
        col2im_naive_implementation(data[0, c * 6 : c * 6 + 6], image, block, [1, 1], [0, 0, 0, 0], [1, 1])
        for c in range(2)
    ]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6)
