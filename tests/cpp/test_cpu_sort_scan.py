# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels that go along lines against numpy's stable sorts and running products, called as the compiled program
calls them: on one thread and on several, with the workspace that the plan gives and no byte more."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm_ffi
from sort_scan_cases import (
    DTYPES,
    check_suppression,
    check_top_k,
    expected_positions,
    expected_scan,
    make_op,
    random,
    run,
)

from memc.ir.ops.library import cpu_sort_scan

Array = npt.NDArray[Any]


pytestmark = pytest.mark.usefixtures("threads")


SHAPES = [((7, 1), 1), ((5, 33), 1), ((3, 257, 2), 1), ((700,), 0), ((4, 600, 3), 1), ((2000, 2), 0)]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_top_k(dtype: str, largest: bool, ties: bool) -> None:
    for shape, axis in SHAPES:
        extent = shape[axis]
        for k in sorted({1, min(2, extent), min(256, extent), min(257, extent), extent - extent // 3, extent}):
            check_top_k(cpu_sort_scan.TOP_K_CPU, random(dtype, shape, ties), axis, k, largest)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int64"])
@pytest.mark.parametrize("k", [1, 100, 256, 257, 3000, 40_000, 69_999, 70_001])
def test_long_lines(dtype: str, k: int) -> None:
    for ties in (False, True):
        check_top_k(cpu_sort_scan.TOP_K_CPU, random(dtype, (2, 70_001), ties), 1, k, k % 2 == 0)


@pytest.mark.parametrize("room", [0, 1])
def test_long_lines_apart(room: int) -> None:
    x = random("float32", (2, 40_000, 9), False)
    for k in (10, 300, 40_000):
        check_top_k(cpu_sort_scan.TOP_K_CPU, x, 1, k, True, room)


@pytest.mark.parametrize("k", [5, 256, 300, 5000])
def test_lines_in_any_order(k: int) -> None:
    """Ascending and descending ones are the worst cases of selection; of all equal ones the first count."""
    ramp = np.arange(5000, dtype=np.float32)
    for line in (ramp, ramp[::-1], np.zeros(5000, np.float32), np.minimum(ramp, 7), ramp % 11):
        for largest in (False, True):
            check_top_k(cpu_sort_scan.TOP_K_CPU, line, 0, k, largest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_ranks_and_positions(dtype: str, descending: bool) -> None:
    for shape, axis in [*SHAPES, ((40_000,), 0)]:
        for room in (0, 1):
            x = random(dtype, shape, True)
            (ranks,) = run(cpu_sort_scan.SORT_RANKS_CPU, "sort_ranks", x, room, axis=axis, descending=descending)
            positions = expected_positions(x, axis, descending)
            np.testing.assert_array_equal(ranks, np.argsort(positions, axis))
            for count in (1, shape[axis]):
                (found,) = run(cpu_sort_scan.RANK_POSITIONS_CPU, "rank_positions", ranks, axis=axis, count=count)
                np.testing.assert_array_equal(found, np.take(positions, range(count), axis))


def test_a_line_without_room_is_refused() -> None:
    op = make_op("top_k", np.zeros((600, 2), np.float32), axis=0, k=600, largest=True)
    arrays = [np.zeros((600, 2), t) for t in (np.float32, np.float32, np.int64)]
    with pytest.raises(ValueError, match=r"memc.cpu.top_k: expected a workspace of 9600 bytes or more, got 0"):
        tensors = [tvm_ffi.from_dlpack(a) for a in arrays]
        tvm_ffi.get_global_func("memc.cpu.top_k")(*tensors, *cpu_sort_scan.TOP_K_CPU.scalars(op))


PRODUCTS = "float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", PRODUCTS)
def test_running_products(dtype: str, exclusive: bool, reverse: bool) -> None:
    rng = np.random.default_rng(7)
    for shape, axis in [((1,), 0), ((3, 5, 4), 1), ((2, 9000), 1), ((40, 501), 0)]:
        if dtype.startswith("float"):
            x = rng.uniform(-1.01, 1.01, shape).astype(dtype)
        else:
            x = rng.integers(0, 120, shape).astype(dtype) | 1
        attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
        (found,) = run(cpu_sort_scan.CUMPROD_CPU, "cumprod", x, **attrs)
        turned = np.flip(x, axis) if reverse else x
        wanted = np.cumprod(turned, axis=axis, dtype=x.dtype)
        if exclusive:
            one = np.ones_like(np.take(wanted, [0], axis))
            wanted = np.concatenate([one, np.delete(wanted, -1, axis)], axis)
        wanted = np.flip(wanted, axis) if reverse else wanted
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", PRODUCTS)
def test_running_sums(dtype: str, exclusive: bool, reverse: bool) -> None:
    """Of floats to some roundings of their type, whatever the length."""
    attrs = {"exclusive": exclusive, "reverse": reverse}
    for shape, axis in [((33,), 0), ((3, 50, 4), 1), ((2, 9000), 1), ((4097, 5), 0), ((70_000,), 0), ((40, 500), 0)]:
        x = random(dtype, shape, True, special=False)
        if dtype.startswith("float"):
            x = np.random.default_rng(1).uniform(0.1, 1, shape).astype(dtype)
        (found,) = run(cpu_sort_scan.CUMSUM_CPU, "cumsum", x, axis=axis, **attrs)
        wanted = expected_scan("cumsum", x, axis=axis, **attrs)
        if dtype.startswith("float"):
            np.testing.assert_allclose(found, wanted, rtol=1e-7 if dtype == "float32" else 1e-12)
        else:
            np.testing.assert_array_equal(found, wanted)


def test_running_sums_are_the_same_on_any_number_of_threads(threads: int) -> None:
    """Bits of f64, which would tell a sum made in another order."""
    use = tvm_ffi.get_global_func("memc.cpu.use_threads")
    for shape, axis in [((70_000,), 0), ((50_000, 3), 0), ((30_000, 40), 0), ((5, 9000), 1)]:
        x = np.random.default_rng(2).standard_normal(shape)
        attrs = {"axis": axis, "exclusive": False, "reverse": False}
        (found,) = run(cpu_sort_scan.CUMSUM_CPU, "cumsum", x, **attrs)
        use(1)
        (alone,) = run(cpu_sort_scan.CUMSUM_CPU, "cumsum", x, **attrs)
        use(threads)
        assert found.tobytes() == alone.tobytes()


def test_running_sums_with_infinities_and_nans() -> None:
    x = np.ones(20_000, np.float32)
    x[[3000, 9000, 15_000]] = np.inf, -np.inf, 5
    (found,) = run(cpu_sort_scan.CUMSUM_CPU, "cumsum", x, axis=0, exclusive=False, reverse=False)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, np.cumsum(x))


def test_products_that_overflow_after_a_zero() -> None:
    x = np.full((1, 3000), 1e30, np.float32)
    x[0, 5] = 0
    (found,) = run(cpu_sort_scan.CUMPROD_CPU, "cumprod", x, axis=1, exclusive=False, reverse=False)
    assert found[0, 4] == np.inf and np.isnan(found[0, 5:]).all()
    x[0, :5] = 1
    (found,) = run(cpu_sort_scan.CUMPROD_CPU, "cumprod", x, axis=1, exclusive=False, reverse=False)
    assert (found[0, 5:] == 0).all()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    "classes, count, most", [(1, 1, 1), (3, 70, 70), (2, 3000, 40), (1, 6000, 6000), (5, 900, 600)]
)
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.97])
def test_non_max_suppression(classes: int, count: int, most: int, center: bool, threshold: float) -> None:
    check_suppression(cpu_sort_scan.SUPPRESSION_CPU, classes, count, most, center, threshold)
