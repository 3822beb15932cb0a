# SPDX-License-Identifier: Apache-2.0
"""The dynamic code of 8-bit optimizers against its definition, and kernels against the nearest numbers."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.dynamic_code import numbers

RANDOM = np.random.default_rng(5)


def defined(signed: bool) -> np.ndarray:
    """The 256 numbers as the paper's authors list them."""
    data = [0.0, 1.0]
    for power in range(7):
        edges = np.linspace(0.1, 1, 2 ** (power + (0 if signed else 1)) + 1)
        middles = 10.0 ** (power - 6) * (edges[:-1] + edges[1:]) / 2
        data += [*middles, *(-middles if signed else ())]
    return np.sort(data)


@pytest.mark.parametrize("signed", [True, False])
def test_numbers(check_op, signed):
    wanted = defined(signed)
    assert wanted.shape == (256,)
    np.testing.assert_allclose(numbers(signed), wanted, rtol=1e-6)
    every = np.arange(256, dtype=np.uint8)
    check_op("decode_dynamic", [every.reshape(16, 16)], [wanted.astype(np.float32).reshape(16, 16)], signed=signed)


@pytest.mark.parametrize("signed", [True, False])
def test_nearest(check_op, signed):
    """Numbers of all decades, every number of the code, and such as lie beyond its ends."""
    known = numbers(signed).astype(np.float64)
    x = 10 ** RANDOM.uniform(-8, 0, 3000) * (RANDOM.choice([-1, 1], 3000) if signed else 1)
    x = np.concatenate([x, known, [1.5, -0.999 if signed else 0.0, -1.5 if signed else -0.5]]).astype(np.float32)
    distance = np.abs(x[:, None].astype(np.float64) - known)
    nearest = np.sort(distance, 1)
    clear = nearest[:, 1] - nearest[:, 0] > 1e-5 * np.abs(x)
    assert clear.mean() > 0.99
    check_op("encode_dynamic", [x[clear]], [distance[clear].argmin(1).astype(np.uint8)], signed=signed)


def test_contract(make_op):
    with pytest.raises(OpError, match="expected bytes, u8, got i32"):
        make_op("decode_dynamic", [np.zeros(3, np.int32)], signed=True)
    with pytest.raises(OpError, match="expected numbers of f32, got f64"):
        make_op("encode_dynamic", [np.zeros(3)], signed=True)
    with pytest.raises(OpError, match="signed"):
        make_op("encode_dynamic", [np.zeros(3, np.float32)])
