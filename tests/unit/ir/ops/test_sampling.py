# SPDX-License-Identifier: Apache-2.0
"""grid_sample, roi_align and deform_conv: compiled kernels against the references, which the importers' tests hold to
onnxruntime, and values worked out by hand."""

import numpy as np
import pytest

import memc
from memc.ir.errors import OpError
from memc.ir.evaluate import evaluate
from memc.ir.ops.shared.op_def import definition

RANDOM = np.random.default_rng(4)


def random(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.fixture
def same(make_op, check_op):
    """The compiled op gives what its reference gives."""

    def check(name, inputs, **attrs):
        op = make_op(name, inputs, **attrs)
        expected = definition(op).evaluate(inputs, op.attrs, [r.type for r in op.results])
        check_op(name, inputs, expected, rtol=1e-4, atol=1e-4, **attrs)

    return check


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample(same, mode, padding, align):
    grid = RANDOM.uniform(-2.5, 2.5, (2, 3, 4, 2)).astype(np.float32)
    same("grid_sample", [random(2, 2, 4, 5), grid], mode=mode, padding_mode=padding, align_corners=align)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grid_sample_of_volumes(same, mode):
    grid = RANDOM.uniform(-1.3, 1.3, (1, 2, 3, 2, 3)).astype(np.float32)
    same("grid_sample", [random(1, 2, 3, 4, 5), grid], mode=mode, padding_mode="zeros", align_corners=False)


def test_grid_sample_at_centres_and_far_away(check_op):
    x = np.array([[[[1.0, 2.0], [3.0, 4.0]]]], np.float32)
    grid = np.array([[[[-1, -1], [1, 1], [0, 0], [1e30, 0], [0, -1e30]]]], np.float32)
    attrs = {"mode": "linear", "align_corners": True}
    check_op("grid_sample", [x, grid], [[[[[1, 4, 2.5, 0, 0]]]]], padding_mode="zeros", **attrs)
    check_op("grid_sample", [x, grid], [[[[[1, 4, 2.5, 3, 1.5]]]]], padding_mode="border", **attrs)


@pytest.mark.parametrize("half_pixel", [False, True])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(same, mode, half_pixel):
    rois = np.array([[0, 0, 3, 4], [-2, 1, 9, 12], [2.5, 2, 2.6, 2.1]], np.float32)
    attrs = {"size": (3, 2), "sampling_ratio": 2, "spatial_scale": 0.8, "mode": mode, "half_pixel": half_pixel}
    same("roi_align", [random(2, 3, 6, 7), rois, np.array([0, 1, 1], np.int64)], **attrs)


@pytest.mark.parametrize("half_pixel", [False, True])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_with_samples_by_size(mode, half_pixel):
    """The expansion, compiled, also for boxes far larger than the map, beyond it, and without extent."""
    rois = [[0, 0, 3, 4], [-2, 1, 9, 12], [2.5, 2, 2.6, 2.1], [-91, -35, 60, 47], [50, 60, 70, 80], [3, 3, 1, 1]]
    given = {"x": random(2, 3, 6, 7), "r": np.array(rois, np.float32), "i": np.array([0, 1, 1, 0, 1, 0])}
    text = f"""func @main(%x: f32[2,3,6,7] {{role = input}}, %r: f32[6,4] {{role = input}}, %i: i64[6] {{role = input}}) -> f32[6,3,3,2] {{
      %y = roi_align_adaptive(%x, %r, %i) {{size = [3, 2], spatial_scale = 0.8, half_pixel = {str(half_pixel).lower()}, mode = "{mode}"}} : f32[6,3,3,2]
      return %y
    }}"""
    (expected,) = evaluate(memc.parse(text), given).values()
    (found,) = memc.compile(memc.parse(text)).load().run_numpy(given).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert (expected[:5] != 0).any(axis=(1, 2, 3)).tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(same, masked):
    x, w, offset = random(2, 4, 6, 5), random(6, 2, 3, 2), random(2, 2 * 2 * 6, 3, 4) * 3
    inputs = [x, w, offset] + ([random(2, 2 * 6, 3, 4)] if masked else [])
    attrs = {"strides": (2, 1), "pads": (1, 0, 1, 0), "dilations": (1, 1), "group": 2, "offset_group": 2}
    same("deform_conv", inputs, **attrs)


def test_contracts(make_op):
    x = random(1, 1, 4, 4)
    with pytest.raises(OpError, match=r"grid \[N, out..., 2\]"):
        make_op("grid_sample", [x, random(1, 3, 3, 3)], mode="linear", padding_mode="zeros", align_corners=False)
    with pytest.raises(OpError, match="`mode` one of"):
        make_op("grid_sample", [x, random(1, 3, 3, 2)], mode="soft", padding_mode="zeros", align_corners=False)
    with pytest.raises(OpError, match="`sampling_ratio`"):
        inputs = [x, random(1, 4), np.zeros(1, np.int64)]
        attrs = {"size": (1, 1), "sampling_ratio": 0, "spatial_scale": 1.0, "mode": "avg", "half_pixel": True}
        make_op("roi_align", inputs, **attrs)
    with pytest.raises(OpError, match="offsets or mask of shape"):
        attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "offset_group": 1}
        make_op("deform_conv", [x, random(1, 1, 3, 3), random(1, 2, 2, 2)], **attrs)
