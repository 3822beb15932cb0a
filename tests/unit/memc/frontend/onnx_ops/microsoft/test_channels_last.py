# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's ops with channels last."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(12)


def integers(of, *shape):
    info = np.iinfo(of)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(of)


@pytest.mark.parametrize("of", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("spatial", [(9,), (7, 6)])
@pytest.mark.parametrize("bias", [False, True])
def test_qlinear_conv(same, of, last, spatial, bias):
    count, kernel = len(spatial), (3,) * len(spatial)
    x = integers(of[0], *((2, *spatial, 4) if last else (2, 4, *spatial)))
    scales = RANDOM.uniform(0.01, 0.02, 6).astype(np.float32)
    zeros = np.zeros(6, of[1]) if of[1] is np.int8 else np.full(6, 117, np.uint8)
    inputs = [x, np.array(0.02, np.float32), integers(of[0]), integers(of[1], 6, 2, *kernel), scales, zeros]
    inputs += [np.array(0.5, np.float32), integers(of[0])]
    inputs += [RANDOM.integers(-9999, 9999, 6).astype(np.int32)] if bias else []
    attrs = {"group": 2, "pads": [1] * (2 * count), "strides": [2] * count, "channels_last": last}
    same("QLinearConv", inputs, known=(3, 5), rounded=0.02, **attrs)


@pytest.mark.parametrize("of", [np.uint8, np.int8])
@pytest.mark.parametrize("more", [{}, {"pads": [1, 0, 1, 1]}, {"ceil_mode": 1}, {"auto_pad": "SAME_UPPER"}])
def test_nhwc_max_pool(same, of, more):
    same("NhwcMaxPool", [integers(of, 2, 7, 6, 3)], kernel_shape=[3, 2], strides=[2, 2], **more)


def test_refusals(run):
    with pytest.raises(
        UnsupportedError, match=r"\(NhwcMaxPool\): expected an input \[n, spatial..., c\], got u8\[2,3\]"
    ):
        run("NhwcMaxPool", [integers(np.uint8, 2, 3)], kernel_shape=[2])
