# SPDX-License-Identifier: Apache-2.0
"""dropout: the generator's published numbers, and the same mask in numpy and in compiled kernels."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition
from memc.ir.ops.shared.philox import philox
from memc.runtime.codegen.debug import run_op


# The known answers of the authors' Random123 library for philox4x32-10.
@pytest.mark.parametrize(
    "counter, key, words",
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter, key, words):
    found = philox([np.array([c], np.uint64) for c in counter], key)
    assert tuple(int(w[0]) for w in found) == words


def mask_of(make_op, shape, seed, dtype=np.float32, ratio=0.3, stream=5):
    arrays = [np.ones(shape, dtype), np.asarray(seed, np.int64)]
    op = make_op("dropout", arrays, ratio=ratio, stream=stream)
    (reference,) = definition(op).evaluate(arrays, op.attrs, [op.result.type])
    (compiled,) = run_op(op, arrays)
    assert reference.tobytes() == compiled.tobytes()
    return reference


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("seed", [0, 1, -1, 2**40 + 3])
def test_compiled_masks_are_those_of_the_reference(make_op, seed, dtype):
    mask = mask_of(make_op, (3, 5, 7), seed, dtype)
    assert set(np.unique(mask.astype(float))) == {0.0, float(np.asarray(1 / 0.7, np.float32).astype(dtype))} or (
        dtype is np.float64
    )


def test_shares_and_independence(make_op):
    shape, ratio = (64, 1000), 0.3
    masks = [
        mask_of(make_op, shape, seed, ratio=ratio, stream=stream) != 0 for seed, stream in [(0, 0), (1, 0), (0, 1)]
    ]
    deviation = (ratio * (1 - ratio) / masks[0].size) ** 0.5
    for mask in masks:
        assert abs(mask.mean() - (1 - ratio)) < 4 * deviation
    for a, b in [(0, 1), (0, 2), (1, 2)]:  # Of independent masks both keep 0.49 of all elements.
        assert abs((masks[a] & masks[b]).mean() - (1 - ratio) ** 2) < 5 * deviation


def test_ratio_zero_keeps_all(make_op):
    assert (mask_of(make_op, (50,), 3, ratio=0.0) == 1).all()


def test_a_mask_depends_on_positions_not_on_shape(make_op):
    assert (mask_of(make_op, (6, 4), 9).reshape(-1) == mask_of(make_op, (24,), 9)).all()


def test_contract(make_op):
    x, seed = np.zeros(3, np.float32), np.zeros((), np.int64)
    with pytest.raises(OpError, match="expected attribute `ratio` from 0 to below 1, got 1.0"):
        make_op("dropout", [x, seed], ratio=1.0, stream=0)
    with pytest.raises(OpError, match=r"expected a seed i64\[\], got i32\[\]"):
        make_op("dropout", [x, seed.astype(np.int32)], ratio=0.5, stream=0)
    with pytest.raises(OpError, match="attribute `stream`"):
        make_op("dropout", [x, seed], ratio=0.5, stream=-1)
