# SPDX-License-Identifier: Apache-2.0
"""max_pool_taps, max_pool_grad and sum_pool_grad: values against PyTorch's rules, window by window."""

from itertools import product

import numpy as np
import pytest

from memc.ir.errors import OpError

RNG = np.random.default_rng(5)

WINDOWS = [
    # spatial, kernel, strides, pads, dilations
    ((9,), (3,), (2,), (1, 1), (1,)),
    ((7, 6), (2, 3), (1, 2), (0, 0, 0, 0), (1, 1)),
    ((7, 6), (3, 2), (2, 2), (1, 0, 2, 1), (2, 1)),
    ((20, 17), (16, 16), (2, 1), (0, 0, 0, 0), (1, 1)),
    ((4, 5, 3), (2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2)),
]


def attrs_of(geometry):
    return dict(zip(("kernel", "strides", "pads", "dilations"), geometry[1:]))


def windows(spatial, kernel, strides, pads, dilations):
    """The position of each window, and the elements under it with the number of their tap."""
    rank = len(spatial)
    out = [
        (spatial[a] + pads[a] + pads[rank + a] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    for at in product(*map(range, out)):
        inside = []
        for number, tap in enumerate(product(*map(range, kernel))):
            place = tuple(at[a] * strides[a] + tap[a] * dilations[a] - pads[a] for a in range(rank))
            if all(0 <= p < n for p, n in zip(place, spatial)):
                inside.append((number, place))
        yield tuple(out), at, inside


@pytest.mark.parametrize("geometry", WINDOWS)
def test_gradients(check_op, geometry):
    x = RNG.integers(0, 4, (2, 2, *geometry[0])).astype(np.float32)  # Small integers: many are equal.
    (out, _, _), *_ = windows(*geometry)
    g = RNG.standard_normal((2, 2, *out)).astype(np.float32)
    taps = np.zeros(g.shape, np.int64)
    of_max, of_sum = np.zeros(x.shape), np.zeros(x.shape)
    for (_, at, inside), n, c in product(windows(*geometry), range(2), range(2)):
        number, best = max(inside, key=lambda item: x[(n, c, *item[1])])  # The first of equals.
        taps[(n, c, *at)] = number
        of_max[(n, c, *best)] += g[(n, c, *at)]
        for _, place in inside:
            of_sum[(n, c, *place)] += g[(n, c, *at)]
    narrow = taps.astype(np.uint8 if np.prod(geometry[1]) < 256 else np.int32)
    check_op("max_pool_taps", [x], [narrow], **attrs_of(geometry))
    check_op("max_pool_grad", [narrow, g], [of_max], atol=1e-5, **attrs_of(geometry), shape=geometry[0])
    check_op("sum_pool_grad", [g], [of_sum], rtol=1e-4, atol=1e-4, **attrs_of(geometry), shape=geometry[0])


def test_a_window_of_nan_has_no_tap(check_op):
    x = np.array([[[np.nan, 1.0, 2.0, 3.0]]], np.float32)
    attrs = {"kernel": (2,), "strides": (2,), "pads": (0, 0), "dilations": (1,)}
    check_op("max_pool_taps", [x], [np.array([[[255, 1]]], np.uint8)], **attrs)
    taps, g = np.array([[[255, 1]]], np.uint8), np.array([[[5.0, 7.0]]], np.float32)
    check_op("max_pool_grad", [taps, g], [[[[0, 0, 0, 7]]]], **attrs, shape=(4,))


def test_half_precision(check_op):
    g = np.full((1, 1, 2000), 0.1, np.float16)
    attrs = {"kernel": (2000,), "strides": (1,), "pads": (1999, 1999), "dilations": (1,), "shape": (1,)}
    check_op("sum_pool_grad", [g], [[[[2000 * float(np.float16(0.1))]]]], rtol=1e-4, **attrs)


def test_contract(make_op):
    g = np.zeros((1, 1, 3), np.float32)
    attrs = {"kernel": (2,), "strides": (1,), "pads": (0, 0), "dilations": (1,)}
    with pytest.raises(OpError, match=r"expected a gradient of \[4\] windows for the extents \[5\], got f32\[1,1,3\]"):
        make_op("sum_pool_grad", [g], **attrs, shape=(5,))
    with pytest.raises(OpError, match=r"expected taps u8\[1,1,3\], got i32\[1,1,3\]"):
        make_op("max_pool_grad", [g.astype(np.int32), g], **attrs, shape=(4,))
    with pytest.raises(OpError, match="expected x .N, C, spatial.... of floats or integers of up to 32 bits, got i64"):
        make_op("max_pool_taps", [g.astype(np.int64)], **attrs)
