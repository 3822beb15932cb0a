# SPDX-License-Identifier: Apache-2.0
"""attention: values, the place of the positions, masks, and the contract."""

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition

RANDOM = np.random.default_rng(3)


def some(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def exact(q, k, v, scale, mask=0.0):
    """Of heads outside the positions, in f64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12), (np.float16, 2e-3)])
def test_against_f64(check_op, dtype, tolerance):
    q, k, v = some(2, 3, 5, dtype=dtype), some(2, 4, 5, dtype=dtype), some(2, 4, 6, dtype=dtype)
    expected = [exact(q, k, v, 0.5)]
    check_op("attention", [q, k, v], expected, rtol=tolerance, atol=tolerance, axis=1, scale=0.5)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_positions_anywhere(check_op, axis):
    q, k, v, mask = some(2, 3, 5, 8), some(2, 3, 7, 8), some(2, 3, 7, 6), some(2, 1, 5, 7)
    expected = exact(q, k, v, 0.3, mask)
    moved = [np.ascontiguousarray(np.moveaxis(x, -2, axis)) for x in (q, k, v, expected)]
    check_op("attention", [*moved[:3], mask], [moved[3]], axis=axis, scale=0.3)


def test_rows_without_keys_are_nan(check_op):
    q, k, v, mask = some(2, 4), some(3, 4), some(3, 4), np.zeros((2, 3), np.float32)
    mask[0] = -np.inf
    mask[1, 1] = -np.inf
    expected = exact(q, k[[0, 2]], v[[0, 2]], 1.0)
    expected[0] = np.nan
    check_op("attention", [q, k, v, mask], [expected], axis=0, scale=1.0)


@pytest.mark.parametrize(
    ("shapes", "attrs", "message"),
    [
        ([(4, 8), (4, 8)], {}, "operands q, k, v"),
        ([(4, 8), (4, 8), (4, 8)], {"axis": 1}, "before the last"),
        ([(4, 8), (5, 9), (5, 8)], {}, "expected keys"),
        ([(4, 8), (5, 8), (6, 8)], {}, "expected values"),
        ([(2, 4, 8), (3, 4, 8), (3, 4, 8)], {"axis": 1}, "expected keys"),
        ([(4, 8), (5, 8), (5, 8), (4, 6)], {}, "expected a mask"),
        ([(4, 8), (5, 8), (5, 8), (2, 4, 5)], {}, "expected a mask"),
    ],
)
def test_contract(make_op, shapes, attrs, message):
    with pytest.raises(OpError, match=message):
        make_op("attention", [some(*shape) for shape in shapes], **{"axis": 0, "scale": 1.0, **attrs})


def test_types(make_op):
    with pytest.raises(OpError, match="of one type"):
        make_op("attention", [some(4, 8), some(4, 8), some(4, 8, dtype=np.float64)], axis=0, scale=1.0)


def test_flops_and_bytes(make_op):
    op = make_op("attention", [some(2, 3, 8), some(2, 5, 8), some(2, 5, 8)], axis=1, scale=1.0)
    rules = definition(op)
    assert rules.flops(op) == 2 * 3 * 5 * (16 + 16 + 5)
    assert rules.in_place is not None and tuple(rules.in_place(op)) == (0,)
    narrow = make_op("attention", [some(3, 8), some(5, 8), some(5, 4)], axis=0, scale=1.0)
    assert tuple(rules.in_place(narrow)) == ()
