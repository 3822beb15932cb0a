# SPDX-License-Identifier: Apache-2.0
"""Importing normalization layers, against onnxruntime or the formula."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(2)


def random(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def statistics(channels):
    return [random(channels), random(channels), random(channels), RANDOM.uniform(0.5, 2, channels).astype(np.float32)]


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("known", [(), (1, 2, 3, 4), (1, 2)])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (1, 3, 2, 4)])
def test_batch_norm_inference(same_as_ort, opset, known, shape):
    same_as_ort(
        "BatchNormalization", [random(*shape), *statistics(3)], opset=opset, known=known, epsilon=1e-3, rtol=1e-4
    )


@pytest.mark.parametrize("opset", [14, 15])
def test_batch_norm_training(same_as_ort, opset):
    inputs = [random(4, 3, 5), *statistics(3)]
    same_as_ort("BatchNormalization", inputs, 3, opset=opset, training_mode=1, momentum=0.7, rtol=1e-4, atol=1e-5)


def test_old_batch_norm_with_statistics_outputs_is_training(run_node):
    x, scale, bias, mean, var = random(4, 3, 5), *statistics(3)
    found = run_node("BatchNormalization", [x, scale, bias, mean, var], 5, opset=9, momentum=0.9)
    own_mean, own_var = x.mean(axis=(0, 2)), x.var(axis=(0, 2))
    per = (slice(None), None)
    wanted = (x - own_mean[per]) / np.sqrt(own_var[per] + 1e-5) * scale[per] + bias[per]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], 0.9 * mean + 0.1 * own_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2], 0.9 * var + 0.1 * own_var, rtol=1e-4)
    np.testing.assert_allclose(found[4], own_var, rtol=1e-4)


def test_batch_norm_not_spatial(run_node):
    x = random(2, 3, 4)
    scale, bias, mean = random(3, 4), random(3, 4), random(3, 4)
    var = RANDOM.uniform(0.5, 2, (3, 4)).astype(np.float32)
    for known in ((), (1, 2, 3, 4)):
        (found,) = run_node("BatchNormalization", [x, scale, bias, mean, var], opset=7, known=known, spatial=0)
        np.testing.assert_allclose(found, (x - mean) / np.sqrt(var + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 22])
def test_instance_norm(run_node, opset):
    x, scale, bias = 100 + random(2, 3, 5, 4), random(3), random(3)
    (found,) = run_node("InstanceNormalization", [x, scale, bias], opset=opset, epsilon=1e-2)
    wide = x.astype(np.float64)
    plain = (wide - wide.mean((2, 3), keepdims=True)) / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-2)
    np.testing.assert_allclose(found, plain * scale[:, None, None] + bias[:, None, None], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("opset, parameters", [(18, 2), (21, 6)])
def test_group_norm(run_node, opset, parameters):
    x, scale, bias = random(2, 6, 3, 3), random(parameters), random(parameters)
    (found,) = run_node("GroupNormalization", [x, scale, bias], opset=opset, num_groups=2)
    grouped = x.reshape(2, 2, -1).astype(np.float64)
    plain = (grouped - grouped.mean(2, keepdims=True)) / np.sqrt(grouped.var(2, keepdims=True) + 1e-5)
    each = np.repeat(scale, 6 // parameters), np.repeat(bias, 6 // parameters)
    wanted = plain.reshape(x.shape) * each[0][:, None, None] + each[1][:, None, None]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("outputs", [1, 3, ["y0", "", "y2"]])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(run_node, axis, outputs, bias):
    x = random(2, 3, 4)
    scale = random(*x.shape[axis:])
    shift = random(*x.shape[axis:]) if bias else None
    found = run_node("LayerNormalization", [x, scale] + ([shift] if bias else []), outputs, axis=axis)
    axes = tuple(range(axis % 3, 3))
    mean, inverse = x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    wanted = (x - mean) * inverse * scale + (shift if bias else 0)
    every = {"y0": wanted, "y1": mean, "y2": inverse}
    names = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else [n for n in outputs if n]
    for name, value in zip(names, found):
        assert value.shape == every[name].shape
        np.testing.assert_allclose(value, every[name], rtol=1e-4, atol=1e-5)


def test_layer_norm_of_halves_has_f32_statistics(run_node):
    x = (300 * RANDOM.standard_normal((2, 512))).astype(np.float16)
    y, mean, inverse = run_node("LayerNormalization", [x, np.ones(512, np.float16)], 3)
    assert (y.dtype, mean.dtype, inverse.dtype) == (np.float16, np.float32, np.float32)
    np.testing.assert_allclose(inverse[:, 0], 1 / x.astype(np.float64).std(1), rtol=1e-3)


def test_layer_norm_with_full_scale(run_node):
    x, scale = random(2, 3, 4), random(2, 3, 4)
    (found,) = run_node("LayerNormalization", [x, scale])
    plain = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, plain * scale, rtol=1e-4, atol=1e-5)


def test_rms_norm(run_node):
    x, scale = random(2, 3, 4), random(4)
    wanted = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * scale
    for op_type in ("RMSNormalization", "SimplifiedLayerNormalization"):
        found = run_node(op_type, [x, scale], opset=23)
        np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [9, 13])
def test_mean_variance_norm(same_as_ort, opset):
    same_as_ort("MeanVarianceNormalization", [random(2, 3, 4, 4)], opset=opset, axes=[0, 2, 3], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_norm(same_as_ort, p, axis):
    same_as_ort("LpNormalization", [random(2, 3, 4)], p=p, axis=axis)


def test_lp_norm_of_zeros_is_zero(run_node):
    (found,) = run_node("LpNormalization", [np.array([[0, 0], [3, -4]], np.float32)])
    np.testing.assert_allclose(found, [[0, 0], [0.6, -0.8]], rtol=1e-6)


@pytest.mark.parametrize("known", [(), (1, 2, 3, 4)])
def test_statistics_of_other_channels_are_rejected(run_node, known):
    with pytest.raises(UnsupportedError, match="channels of"):
        run_node("BatchNormalization", [random(2, 1, 5), *statistics(3)], opset=15, known=known)


def test_scale_larger_than_the_input_is_rejected(run_node):
    with pytest.raises(UnsupportedError, match="expected input 1 to broadcast"):
        run_node("LayerNormalization", [random(1, 4), random(3, 4)])
