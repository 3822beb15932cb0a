# SPDX-License-Identifier: Apache-2.0
"""lrn and channel_square_sum against a direct loop over channels."""

import numpy as np
import pytest

from memc.driver import compile
from memc.ir.errors import OpError
from memc.ir.evaluate import evaluate
from memc.ir.text.parser import parse

RANDOM = np.random.default_rng(1)


def square_sum(x, size):
    x = x.astype(np.float64)
    total = np.zeros_like(x)
    for c in range(x.shape[1]):
        window = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
        total[:, c] = (window**2).sum(axis=1)
    return total


def normalized(x, size, alpha, beta, bias):
    return x.astype(np.float64) / (bias + alpha / size * square_sum(x, size)) ** beta


@pytest.mark.parametrize("shape", [(2, 7), (1, 3, 4, 5), (2, 4, 0)])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_square_sum(check_op, shape, size):
    x = RANDOM.normal(size=shape).astype(np.float32)
    check_op("channel_square_sum", [x], [square_sum(x, size)], size=size)


@pytest.mark.parametrize("beta", [0.75, 0.5, 1.3])
@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_values(check_op, size, beta):
    x = RANDOM.normal(size=(2, 6, 3, 4)).astype(np.float32)
    attrs = {"size": size, "alpha": 0.3, "beta": beta, "bias": 1.5}
    check_op("lrn", [x], [normalized(x, **attrs)], **attrs)


def test_half_sums_in_f32(check_op):
    x = np.full((1, 5, 2), 200.0, np.float16)  # the squares alone are above what f16 holds
    attrs = {"size": 5, "alpha": 1.0, "beta": 0.75, "bias": 1.0}
    check_op("lrn", [x], [normalized(x, **attrs)], rtol=1e-3, **attrs)


def test_one_kernel_with_input_and_output_only():
    text = (
        "func @main(%x: f32[1,8,16,16] {role = input}) -> f32[1,8,8,8] {\n"
        "  %a = relu(%x) : f32[1,8,16,16]\n"
        "  %n = lrn(%a) {size = 5, alpha = 0.5, beta = 0.75, bias = 1.0} : f32[1,8,16,16]\n"
        "  %m = max_pool(%n) {kernel = [3,3], strides = [2,2], pads = [1,1,1,1], dilations = [1,1]} : f32[1,8,8,8]\n"
        "  return %m\n}\n"
    )
    x = RANDOM.normal(size=(1, 8, 16, 16)).astype(np.float32)
    compilation = compile(parse(text))
    assert compilation.report.arena_bytes == 2 * x.nbytes
    (found,) = compilation.load().run_numpy({"x": x}).values()
    (expected,) = evaluate(parse(text), {"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 2.0}, {"beta": "high"}])
def test_wrong_attributes(make_op, wrong):
    attrs = {"size": 3, "alpha": 1.0, "beta": 0.75, "bias": 1.0} | wrong
    with pytest.raises(OpError, match=next(iter(wrong))):
        make_op("lrn", [np.zeros((1, 2, 3), np.float32)], **attrs)


def test_integers_are_not_taken(make_op):
    with pytest.raises(OpError, match="expected floats"):
        make_op("channel_square_sum", [np.zeros((1, 2, 3), np.int32)], size=3)
