# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools of images with channels last: values against a loop over windows, and the contract's edges."""

from itertools import product

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.evaluate import run_op as evaluated

RANDOM = np.random.default_rng(3)

WINDOWS = [
    # spatial, kernel, strides, pads, dilations
    ((9,), (3,), (2,), (1, 1), (1,)),
    ((7, 6), (2, 3), (1, 2), (0, 0, 0, 0), (1, 1)),
    ((7, 6), (3, 2), (2, 2), (1, 0, 2, 1), (2, 1)),
    ((4, 5), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((4, 5, 3), (2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2)),
]


def taps(x, geometry, fill):
    """For each output position and tap, what lies under it: [N, out..., kernel..., C]."""
    spatial, kernel, strides, pads, dilations = geometry
    rank = len(spatial)
    x = np.pad(x, [(0, 0), *zip(pads[:rank], pads[rank:]), (0, 0)], constant_values=fill)
    out = tuple((x.shape[a + 1] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1 for a in range(rank))
    found = np.zeros((x.shape[0], *out, *kernel, x.shape[-1]), x.dtype)
    for at, tap in product(product(*map(range, out)), product(*map(range, kernel))):
        place = tuple(at[a] * strides[a] + tap[a] * dilations[a] for a in range(rank))
        found[(slice(None), *at, *tap)] = x[(slice(None), *place)]
    return found


def attrs_of(geometry, *names):
    known = dict(zip(("kernel", "strides", "pads", "dilations"), geometry[1:]))
    return {name: known[name] for name in (*names, "strides", "pads", "dilations")}


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("geometry", WINDOWS)
def test_conv(check_op, geometry, group):
    rank = len(geometry[0])
    x = RANDOM.standard_normal((2, *geometry[0], 4)).astype(np.float32)
    w = RANDOM.standard_normal((6, *geometry[1], 4 // group)).astype(np.float32)
    bias = RANDOM.standard_normal(6).astype(np.float32)
    under = taps(x.astype(np.float64), geometry, 0)
    depth = tuple(range(-1 - rank, 0))
    parts = []
    for g in range(group):
        channels = slice(g * 4 // group, (g + 1) * 4 // group)
        weights = w[g * 6 // group : (g + 1) * 6 // group].astype(np.float64)
        parts.append(np.tensordot(under[..., channels], weights, axes=(depth, depth)))
    expected = np.concatenate(parts, axis=-1)
    attrs = attrs_of(geometry)
    check_op("conv_channels_last", [x, w], [expected.astype(np.float32)], rtol=1e-4, atol=1e-5, group=group, **attrs)
    with_bias = (expected + bias).astype(np.float32)
    check_op("conv_channels_last", [x, w, bias], [with_bias], rtol=1e-4, atol=1e-5, group=group, **attrs)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16])
@pytest.mark.parametrize("geometry", WINDOWS)
def test_pools(check_op, geometry, dtype):
    rank = len(geometry[0])
    x = (RANDOM.standard_normal((2, *geometry[0], 3)) * 9).astype(dtype)
    over = tuple(range(1 + rank, 1 + 2 * rank))
    lowest = -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min
    attrs = attrs_of(geometry, "kernel")
    check_op("max_pool_channels_last", [x], [taps(x, geometry, lowest).max(over)], **attrs)
    summed = np.float32 if dtype is np.float16 else dtype
    check_op("sum_pool_channels_last", [x], [taps(x.astype(summed), geometry, 0).sum(over, dtype=summed)], **attrs)


def test_halves_are_added_up_in_f32(make_op):
    x, w = np.ones((1, 4, 4, 8), np.float16), np.ones((16, 3, 3, 8), np.float16)
    attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "group": 1}
    assert str(make_op("conv_channels_last", [x, w], **attrs).result.type) == "f32[1,4,4,16]"


@pytest.mark.parametrize(
    ("x", "w", "message"),
    [
        ((2, 5, 5, 3), (4, 3, 3, 4), "C = 3"),  # The channels of the weights are last, too.
        ((2, 5, 5, 3), (4, 3, 3), "same rank"),
        ((2, 3), (4, 3), "rank 3 or more with the channels last"),
        ((2, 2, 2, 3), (4, 3, 3, 3), "padded extent of at least 3 on spatial axis 0"),
    ],
)
def test_wrong_operands(make_op, x, w, message):
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1}
    with pytest.raises(OpError, match=message):
        make_op("conv_channels_last", [np.zeros(x, np.float32), np.zeros(w, np.float32)], **attrs)


LIKE = [
    ("conv_transpose", [(2, 5, 4, 3), (3, 3, 2, 4)], {"group": 1, "output_padding": (1, 0)}),
    ("conv_transpose", [(2, 5, 4, 4), (4, 3, 2, 3), (6,)], {"group": 2, "output_padding": (0, 0)}),
    ("conv_grad_weight", [(2, 7, 6, 3), (2, 3, 6, 5)], {"group": 1, "kernel": (3, 2)}),
    ("max_pool_taps", [(2, 7, 6, 3)], {"kernel": (3, 2)}),
    ("sum_pool_grad", [(2, 3, 6, 3)], {"kernel": (3, 2), "shape": (7, 6)}),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), LIKE)
def test_what_the_op_with_channels_first_computes(check_op, make_op, name, shapes, attrs):
    """Whose reference has tests of its own."""
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    window = {"strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 1), **attrs}
    first = [np.moveaxis(a, -1, 1) if a.ndim == 4 else a for a in arrays]
    (y,) = evaluated(make_op(name, first, **window), first)
    check_op(f"{name}_channels_last", arrays, [np.moveaxis(y, 1, -1)], rtol=1e-4, atol=1e-5, **window)


def test_max_pool_grad(check_op, make_op):
    x = RANDOM.integers(0, 3, (2, 7, 6, 3)).astype(np.float32)
    window = {"kernel": (3, 3), "strides": (2, 1), "pads": (1, 1, 0, 1), "dilations": (1, 1)}
    (taps,) = evaluated(make_op("max_pool_taps", [np.moveaxis(x, -1, 1)], **window), [np.moveaxis(x, -1, 1)])
    g = RANDOM.standard_normal(taps.shape).astype(np.float32)
    window["shape"] = (7, 6)
    (y,) = evaluated(make_op("max_pool_grad", [taps, g], **window), [taps, g])
    given = [np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in (taps, g)]
    check_op("max_pool_grad_channels_last", given, [np.moveaxis(y, 1, -1)], **window)
