# SPDX-License-Identifier: Apache-2.0
"""random_uniform and random_normal: the distributions, and the same numbers in numpy and in compiled kernels."""

import math

import numpy as np
import pytest

from memc.ir.errors import OpError
from memc.ir.ops.shared.op_def import definition
from memc.ir.ops.shared.philox import philox
from memc.ir.types import DType
from memc.runtime.codegen.debug import run_op


def drawn(make_op, name, shape, seed=7, stream=3, dtype=DType.F32):
    """By numpy, after a check that the compiled kernel draws the same."""
    arrays = [np.asarray(seed, np.int64)]
    op = make_op(name, arrays, shape=shape, dtype=dtype, stream=stream)
    (reference,) = definition(op).evaluate(arrays, op.attrs, [op.result.type])
    (compiled,) = run_op(op, arrays)
    if name == "random_uniform":
        assert reference.tobytes() == compiled.tobytes()
    else:  # Up to the rounding of log and cos; near a zero of cos the error is absolute.
        bound = 2e-6 if dtype is DType.F32 else 1e-14
        np.testing.assert_allclose(compiled, reference, rtol=bound, atol=bound)
    return reference


@pytest.mark.parametrize("name", ["random_uniform", "random_normal"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize(("shape", "seed"), [((3, 5, 7), -1), ((), 2**40 + 3)])
def test_compiled_numbers_are_those_of_the_reference(make_op, name, dtype, seed, shape):
    drawn(make_op, name, shape, seed, dtype=dtype)


def test_uniform_is_the_generators_first_word(make_op):
    word = philox([np.array([5], np.uint64), *[np.array([n], np.uint64) for n in (0, 9, 0)]], (1, 2))[0]
    seed = 1 + (2 << 32)
    assert drawn(make_op, "random_uniform", (8,), seed, 9)[5] == np.float32(int(word[0]) >> 8) / 2**24
    assert drawn(make_op, "random_uniform", (8,), seed, 9, DType.F64)[5] == int(word[0]) / 2**32


def cumulative(values, of):
    """The largest distance between the values' distribution and `of` (Kolmogorov and Smirnov), times the root of their number."""
    ordered = np.sort(values.reshape(-1).astype(np.float64))
    expected = np.array([of(x) for x in ordered])
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return max(np.abs(steps[1:] - expected).max(), np.abs(steps[:-1] - expected).max()) * math.sqrt(len(ordered))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize(
    ("name", "of"),
    [("random_uniform", lambda x: x), ("random_normal", lambda x: (1 + math.erf(x / math.sqrt(2))) / 2)],
)
def test_distributions(make_op, name, of, dtype):
    values = drawn(make_op, name, (100, 400), dtype=dtype)
    # A right one exceeds 1.95 once in a thousand seeds; this seed is fixed.
    assert cumulative(values, of) < 1.95
    mean, deviation = (0.5, math.sqrt(1 / 12)) if name == "random_uniform" else (0.0, 1.0)
    assert abs(values.mean() - mean) < 4 * deviation / 200
    assert abs(values.std() / deviation - 1) < 0.02
    if name == "random_uniform":
        assert values.min() >= 0 and values.max() < 1


def test_draws_are_independent(make_op):
    draws = [
        drawn(make_op, "random_normal", (40000,), seed, stream).astype(np.float64)
        for seed, stream in [(0, 0), (1, 0), (0, 1), (1 << 32, 0)]
    ]
    draws.append(np.roll(draws[0], 1))
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 4 / 200


def test_contract(make_op):
    seed = np.zeros((), np.int64)
    with pytest.raises(OpError, match="expected attribute `dtype` to be f32 or f64, got f16"):
        make_op("random_uniform", [seed], shape=(2,), dtype=DType.F16, stream=0)
    with pytest.raises(OpError, match=r"expected a seed i64\[\], got f32\[\]"):
        make_op("random_normal", [seed.astype(np.float32)], shape=(2,), dtype=DType.F32, stream=0)
    with pytest.raises(OpError, match="attribute `stream`"):
        make_op("random_normal", [seed], shape=(2,), dtype=DType.F32, stream=2**32)
