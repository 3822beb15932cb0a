# SPDX-License-Identifier: Apache-2.0
"""When two arrays count as the same."""

from __future__ import annotations

import numpy as np
import pytest

from memc.measure.compare import compare


def same(result: object, reference: object, rtol: float = 1e-3, atol: float = 1e-5) -> bool:
    return compare(np.asarray(result), np.asarray(reference), rtol=rtol, atol=atol).matches


def test_tolerances() -> None:
    assert same([1.0005], [1.0]) and not same([1.002], [1.0])
    assert same([9e-6], [0.0]) and not same([2e-5], [0.0])


def test_small_elements_among_large_ones() -> None:
    assert same([1000.0, 1e-3], [1000.0, 0.0])
    assert not same([1000.0, 1e-1], [1000.0, 0.0])


def test_nan_and_infinity() -> None:
    assert same([np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf])
    assert not same([np.nan], [1.0]) and not same([1.0], [np.nan]) and not same([np.inf], [-np.inf])
    assert not same([np.inf], [1e30])


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_whole_numbers_are_equal_or_not(dtype: type) -> None:
    assert same(np.array([1, 0], dtype), np.array([1, 0], dtype))
    assert not same(np.array([1, 1], dtype), np.array([1, 0], dtype), rtol=1.0, atol=10.0)


def test_shapes_and_dtypes_count() -> None:
    assert "expected shape [2], got [1]" in str(compare(np.zeros(1), np.zeros(2), rtol=1, atol=1))
    assert "expected float64, got float32" in str(compare(np.zeros(1, np.float32), np.zeros(1), rtol=1, atol=1))
    assert same(np.zeros((0, 3)), np.zeros((0, 3)))


def test_the_worst_element_is_named() -> None:
    difference = compare(np.array([[1.0, 2.0], [3.0, 9.0]]), np.array([[1.0, 2.0], [3.0, 4.0]]), rtol=0, atol=0)
    assert "1 of 4 elements differ; worst at [1, 1]: expected 4, got 9" in str(difference)
    assert difference.relative_norm == pytest.approx(5 / np.sqrt(30))
