# SPDX-License-Identifier: Apache-2.0
"""Pools: values against a direct loop over windows, and the contract's edges."""

from itertools import product

import numpy as np
import pytest

from memc.ir.errors import OpError

RANDOM = np.random.default_rng(1)

WINDOWS = [
    # spatial, kernel, strides, pads, dilations
    ((9,), (3,), (2,), (1, 1), (1,)),
    ((7, 6), (2, 3), (1, 2), (0, 0, 0, 0), (1, 1)),
    ((7, 6), (3, 2), (2, 2), (1, 0, 2, 1), (2, 1)),
    ((4, 5, 3), (2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2)),
]


def windows(spatial, kernel, strides, pads, dilations):
    """For each output position, the input positions under its window, padding left out."""
    rank = len(spatial)
    out = [
        (spatial[a] + pads[a] + pads[rank + a] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    for at in product(*map(range, out)):
        inside = []
        for tap in product(*map(range, kernel)):
            place = tuple(at[a] * strides[a] + tap[a] * dilations[a] - pads[a] for a in range(rank))
            if all(0 <= p < n for p, n in zip(place, spatial)):
                inside.append(place)
        yield out, at, inside


def direct(x, function, geometry):
    result = None
    for out, at, inside in windows(*geometry):
        if result is None:
            result = np.zeros((*x.shape[:2], *out))
        values = np.stack([x[(slice(None), slice(None), *p)] for p in inside], axis=-1)
        result[(slice(None), slice(None), *at)] = function(values)
    return result


def attrs_of(geometry):
    return dict(zip(("kernel", "strides", "pads", "dilations"), geometry[1:]))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
@pytest.mark.parametrize("geometry", WINDOWS)
def test_max_pool(check_op, geometry, dtype):
    x = (RANDOM.standard_normal((2, 3, *geometry[0])) * 50).astype(dtype)
    check_op("max_pool", [x], [direct(x, lambda v: v.max(-1), geometry)], **attrs_of(geometry))


@pytest.mark.parametrize("geometry", WINDOWS)
def test_max_pool_indices_name_the_first_of_equals(check_op, geometry):
    x = RANDOM.integers(0, 3, (2, 3, *geometry[0])).astype(np.float32)
    pooled = direct(x, lambda v: v.max(-1), geometry).astype(np.float32)
    expected = np.zeros(pooled.shape, np.int64)
    for _, at, inside in windows(*geometry):
        for n, c in product(range(2), range(3)):
            best = max(inside, key=lambda p: (x[(n, c, *p)], [-i for i in p]))
            expected[(n, c, *at)] = np.ravel_multi_index((n, c, *best), x.shape)
    check_op("max_pool_indices", [x], [expected], **attrs_of(geometry))


@pytest.mark.parametrize("geometry", WINDOWS)
def test_sum_pool(check_op, geometry):
    x = RANDOM.standard_normal((2, 3, *geometry[0])).astype(np.float32)
    check_op("sum_pool", [x], [direct(x, lambda v: v.sum(-1), geometry)], **attrs_of(geometry))


@pytest.mark.parametrize("geometry", WINDOWS)
def test_avg_pool_without_padding(check_op, geometry):
    x = RANDOM.standard_normal((2, 3, *geometry[0])).astype(np.float32)
    extra = (0,) * len(geometry[0])
    expected = direct(x, lambda v: v.mean(-1), geometry)
    check_op("avg_pool", [x], [expected], **attrs_of(geometry), extra=extra, count_include_pad=False)


def test_avg_pool_counts_padding_but_not_what_rounding_up_added(check_op):
    x = np.ones((1, 1, 4), np.float32)
    # Windows over [pad, 1, 1], [1, 1, rounding]: the first counts three elements, the second two.
    attrs = {"kernel": (3,), "strides": (3,), "pads": (1, 1), "dilations": (1,), "extra": (1,)}
    check_op("avg_pool", [x], [[[[2 / 3, 1.0]]]], **attrs, count_include_pad=True)
    attrs["extra"] = (0,)
    check_op("avg_pool", [x], [[[[2 / 3, 2 / 3]]]], **attrs, count_include_pad=True)


def test_avg_pool_of_half_precision(check_op):
    x = np.full((1, 1, 64, 64), 40.0, np.float16)
    attrs = {"kernel": (64, 64), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "extra": (0, 0)}
    check_op("avg_pool", [x], [[[[[40.0]]]]], **attrs, count_include_pad=False)


def test_contract(make_op):
    x = np.zeros((1, 1, 4), np.float32)
    with pytest.raises(OpError, match="`kernel` with 1 integers"):
        make_op("max_pool", [x], kernel=(2, 2), strides=(1,), pads=(0, 0), dilations=(1,))
    with pytest.raises(OpError, match="float operand"):
        make_op(
            "avg_pool",
            [x.astype(np.int32)],
            kernel=(2,),
            strides=(1,),
            pads=(0, 0),
            dilations=(1,),
            extra=(0,),
            count_include_pad=False,
        )
