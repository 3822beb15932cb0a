# SPDX-License-Identifier: Apache-2.0
"""Gradients of reads between the elements of an image, in the image and in the positions."""

import numpy as np
import pytest

import memc
from memc.ir.evaluate import evaluate

RNG = np.random.default_rng(23)


def some(*shape):
    return RNG.uniform(-1, 1, shape)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample(check_op_gradient, mode, padding, align):
    grid = RNG.uniform(-1.9, 1.9, (2, 3, 2, 2))
    check_op_gradient("grid_sample", [some(2, 2, 3, 4), grid], mode=mode, padding_mode=padding, align_corners=align)


@pytest.mark.parametrize(
    "mode, spatial", [("linear", (5,)), ("cubic", (5,)), ("linear", (2, 3, 4)), ("nearest", (2, 3, 2))]
)
def test_grid_sample_of_lines_and_volumes(check_op_gradient, mode, spatial):
    grid = RNG.uniform(-1.3, 1.3, (2, *(2,) * len(spatial), len(spatial)))
    check_op_gradient("grid_sample", [some(2, 2, *spatial), grid], mode=mode, padding_mode="zeros", align_corners=False)


def test_grid_sample_of_one_element(check_op_gradient):
    grid = RNG.uniform(-1.3, 1.3, (1, 2, 2, 2))
    for padding in ("zeros", "border", "reflection"):
        attrs = {"mode": "linear", "padding_mode": padding, "align_corners": True}
        check_op_gradient("grid_sample", [some(1, 1, 1, 3), grid], **attrs)


def test_positions_read_by_several_add_up(check_op_gradient):
    grid = np.full((1, 3, 3, 2), 0.3)
    check_op_gradient("grid_sample", [some(1, 1, 3, 3), grid], mode="linear", padding_mode="zeros", align_corners=False)


# Boxes inside the map, across its border, beyond it, and smaller than one element.
BOXES = np.array([[0.3, 0.6, 3.1, 4.2], [-2.2, 1.1, 9.3, 7.4], [2.5, 2.1, 2.7, 2.3], [30.5, 30.5, 33.5, 34.5]])


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("half_pixel", [False, True])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(check_op_gradient, mode, half_pixel, samples):
    attrs = {"size": (3, 2), "sampling_ratio": samples, "spatial_scale": 0.8, "mode": mode, "half_pixel": half_pixel}
    check_op_gradient("roi_align", [some(2, 2, 4, 5), BOXES, np.array([0, 1, 1, 0])], **attrs)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("group, offset_group", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_deform_conv(check_op_gradient, group, offset_group, masked):
    taps = 2 * 3 * offset_group
    inputs = [some(2, 4, 4, 5), some(2, 4 // group, 2, 3), 1.5 * some(2, 2 * taps, 2, 3)]
    inputs += [some(2, taps, 2, 3)] if masked else []
    attrs = {"strides": (2, 1), "pads": (1, 0, 0, 0), "dilations": (2, 1)}
    check_op_gradient("deform_conv", inputs, **attrs, group=group, offset_group=offset_group)


LINEAR = {"mode": "linear", "padding_mode": "reflection", "align_corners": False}
CELLS = {"size": (2, 2), "sampling_ratio": 2, "spatial_scale": 0.8, "mode": "max", "half_pixel": True}
WINDOWS = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "offset_group": 1}
COMPILED = {
    "grid_sample": ([some(1, 2, 3, 4), 1.4 * some(1, 2, 3, 2)], LINEAR),
    "roi_align": ([some(1, 2, 4, 5), BOXES, np.zeros(4, np.int64)], CELLS),
    "deform_conv": ([some(1, 2, 3, 4), some(2, 2, 2, 2), some(1, 8, 2, 3), some(1, 4, 2, 3)], WINDOWS),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_gradients_are_those_of_the_evaluation(check_op_gradient, name):
    inputs, attrs = COMPILED[name]
    module = check_op_gradient(name, inputs, **attrs)
    feeds = {f"x{n}": array for n, array in enumerate(inputs)}
    expected = list(evaluate(module, feeds).values())
    found = memc.compile(module).load().run_numpy(feeds)
    for want, got in zip(expected, found.values()):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
