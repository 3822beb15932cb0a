# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's quantized pools."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(6)
TYPES = [np.uint8, np.int8]


def integers(of, *shape):
    info = np.iinfo(of)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(of)


def settings(of, into=0.25):
    """Scale and zero point of the input and the output."""
    first, second = integers(of, 2)
    return [np.array(0.5, np.float32), np.array(first), np.array(into, np.float32), np.array(second)]


@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("spatial", [(9,), (6, 7), (4, 3, 5)])
@pytest.mark.parametrize("known", [(), (1, 2, 3, 4)], ids=["given at run time", "known"])
def test_global_average_pool(same, of, last, spatial, known):
    shape = (2, *spatial, 5) if last else (2, 5, *spatial)
    same(
        "QLinearGlobalAveragePool",
        [integers(of, *shape), *settings(of, 0.05)],
        known=known,
        rounded=0.05,
        channels_last=last,
    )


POOLS = [
    ((9,), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((7, 6), {"kernel_shape": [3, 2]}),
    ((7, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ((7, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((7, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((7, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ((4, 5, 3), {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 1, 1, 0]}),
]


@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("spatial, attrs", POOLS)
@pytest.mark.parametrize("last, padded", [*itertools.product((0, 1), repeat=2)])
def test_average_pool(same, of, spatial, attrs, last, padded):
    shape = (2, *spatial, 3) if last else (2, 3, *spatial)
    inputs = [integers(of, *shape), *settings(of)]
    same("QLinearAveragePool", inputs, rounded=0.05, channels_last=last, count_include_pad=padded, **attrs)
    same("QLinearAveragePool", inputs[:4], rounded=0.05, channels_last=last, **attrs)


@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("axes, keep", [([1], 1), ([-1, 0], 0), ([0, 1, 2], 1)])
def test_reduce_mean(run, of, axes, keep):
    """No kernel of onnxruntime's CPU provider: against the definition."""
    x, (unit, offset, into, shift) = integers(of, 3, 4, 5), settings(of)
    (found,) = run("QLinearReduceMean", [x, unit, offset, into, shift], axes=axes, keepdims=keep)
    real = (x.astype(np.float64) - int(offset)) * float(unit)
    wanted = real.mean(axis=tuple(axes), keepdims=bool(keep)) / float(into) + int(shift)
    wanted = np.clip(wanted, np.iinfo(of).min, np.iinfo(of).max)
    assert found.dtype == of and found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 0.5001


def test_refusals(run):
    with pytest.raises(UnsupportedError, match=r"expected an input of rank 3 or more, got u8\[2,3\]"):
        run("QLinearGlobalAveragePool", [integers(np.uint8, 2, 3), *settings(np.uint8)])
