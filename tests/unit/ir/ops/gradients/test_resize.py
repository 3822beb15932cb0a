# SPDX-License-Identifier: Apache-2.0
"""Gradients of resampling."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RNG = np.random.default_rng(13)


def test_linear_and_cubic(check_gradient):
    # The tables say all: two axes of different extents and taps, some of them beyond the border.
    tables = [RNG.integers(-1, 4, (5, 2)), RNG.integers(0, 4, (3, 4))]
    weights = [RNG.uniform(-1, 1, t.shape) for t in tables]

    def build(b, x):
        constants = [b.constant(v) for pair in zip(tables, weights) for v in (pair[0].astype(np.int32), pair[1])]
        return b.op("resize", [x[0], *constants], axes=(1, 2))

    check_gradient(build, [RNG.uniform(-1, 1, (2, 3, 4))])


def test_nearest(check_gradient):
    rows, columns = np.array([0, 0, 1, 1, 2, 2], np.int32), np.array([0, 3, 3], np.int32)

    def build(b, x):
        return b.op("resize_nearest", [x[0], b.constant(rows), b.constant(columns)], axes=(1, 2))

    check_gradient(build, [RNG.uniform(-1, 1, (2, 3, 4))])


def test_large_tables_are_weights(check_gradient):
    rows = np.arange(300, dtype=np.int32) // 75
    check_gradient(
        lambda b, x: b.op("resize_nearest", [x[0], b.constant(rows)], axes=(0,)), [RNG.uniform(-1, 1, (4, 2))]
    )


def test_computed_tables(check_op_gradient):
    with pytest.raises(UnsupportedError, match="op resize_nearest: expected constant tables for a gradient, got %x1"):
        check_op_gradient("resize_nearest", [RNG.uniform(-1, 1, (3,)), np.array([1, 2], np.int32)], axes=(0,))
