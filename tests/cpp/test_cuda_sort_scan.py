# SPDX-License-Identifier: Apache-2.0
"""memc's CUDA kernels that go along lines, on fibers of the host, against numpy's stable sorts and running sums and products:
with the workspace that the plan gives and no byte more."""

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
    random_factors,
    run,
)

from memc.ir.ops.library import cuda_sort_scan

Array = npt.NDArray[Any]


@pytest.fixture(autouse=True)
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


SHAPES = [((7, 1), 1), ((5, 33), 1), ((3, 257, 2), 1), ((2050,), 0), ((3, 2300, 2), 1), ((20, 2), 0)]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_top_k(dtype: str, largest: bool, ties: bool) -> None:
    for shape, axis in SHAPES:
        extent = shape[axis]
        for k in sorted({1, min(2, extent), extent - extent // 3, extent}):
            check_top_k(cuda_sort_scan.TOP_K_CUDA, random(dtype, shape, ties), axis, k, largest, k % 2)


@pytest.mark.parametrize("extent", [1, 2, 3, 31, 32, 33, 511, 512, 513, 1000, 4097])
def test_extents(extent: int) -> None:
    for k in sorted({1, extent // 2, extent}):
        if k:
            check_top_k(cuda_sort_scan.TOP_K_CUDA, random("float32", (3, extent), True), 1, k, True)
            check_top_k(cuda_sort_scan.TOP_K_CUDA, random("int64", (extent, 3), True), 0, k, False)


@pytest.mark.parametrize("k", [1, 100, 512, 513, 700, 2047, 2048, 2049, 9000, 20_000, 30_001])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_lines(dtype: str, k: int) -> None:
    for ties in (False, True):
        check_top_k(cuda_sort_scan.TOP_K_CUDA, random(dtype, (30_001,), ties), 0, k, k % 2 == 0)


@pytest.mark.parametrize("room", [0, 1])
def test_long_lines_apart(room: int) -> None:
    """Of sixteen outermost parts two are sorted at a time, or all."""
    for dtype in ("float32", "int64"):
        x = random(dtype, (16, 2100, 3), False)
        for k in (10, 900, 2100):
            check_top_k(cuda_sort_scan.TOP_K_CUDA, x, 1, k, True, room)


@pytest.mark.parametrize("k", [5, 512, 600, 5000])
def test_lines_in_any_order(k: int) -> None:
    ramp = np.arange(5000, dtype=np.float32)
    for line in (ramp, ramp[::-1], np.zeros(5000, np.float32), np.minimum(ramp, 7), ramp % 11):
        for largest in (False, True):
            check_top_k(cuda_sort_scan.TOP_K_CUDA, line, 0, k, largest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_ranks_and_positions(dtype: str, descending: bool) -> None:
    for shape, axis in [((7, 1), 1), ((3, 257, 2), 1), ((5000,), 0), ((9, 2300, 2), 1)]:
        x = random(dtype, shape, True)
        (ranks,) = run(cuda_sort_scan.SORT_RANKS_CUDA, "sort_ranks", x, axis=axis, descending=descending)
        positions = expected_positions(x, axis, descending)
        np.testing.assert_array_equal(ranks, np.argsort(positions, axis))
        for count in (1, shape[axis]):
            (found,) = run(cuda_sort_scan.RANK_POSITIONS_CUDA, "rank_positions", ranks, axis=axis, count=count)
            np.testing.assert_array_equal(found, np.take(positions, range(count), axis))


def test_nothing_is_sorted() -> None:
    for shape, k in (((0,), 0), ((5, 0), 0), ((0, 5), 2), ((4, 3000), 0)):
        values, positions = run(
            cuda_sort_scan.TOP_K_CUDA, "top_k", np.ones(shape, np.float32), axis=len(shape) - 1, k=k, largest=True
        )
        assert values.size == positions.size == 0
    for name, kernel in (("cumsum", cuda_sort_scan.CUMSUM_CUDA), ("cumprod", cuda_sort_scan.CUMPROD_CUDA)):
        found = run(kernel, name, np.ones((0, 40), np.float32), axis=1, exclusive=False, reverse=False)
        assert found[0].shape == (0, 40)


def test_a_line_without_room_is_refused() -> None:
    op = make_op("top_k", np.zeros((2, 6000), np.float32), axis=1, k=6000, largest=True)
    arrays = [np.zeros((2, 6000), t) for t in (np.float32, np.float32, np.int64)]
    tensors = [tvm_ffi.from_dlpack(a) for a in arrays]
    with pytest.raises(ValueError, match=r"memc.cuda.top_k: expected a workspace of 48000 bytes or more, got 0"):
        tvm_ffi.get_global_func("memc.cuda.top_k")(*tensors, *cuda_sort_scan.TOP_K_CUDA.scalars(op))
    op = make_op("cumsum", np.zeros(6000), axis=0, exclusive=False, reverse=False)
    tensors = [tvm_ffi.from_dlpack(np.zeros(6000)) for _ in range(2)]
    with pytest.raises(ValueError, match=r"memc.cuda.cumsum: expected a workspace of 24 bytes or more, got 0"):
        tvm_ffi.get_global_func("memc.cuda.cumsum")(*tensors, *cuda_sort_scan.CUMSUM_CUDA.scalars(op))


LINES = [((33,), 0), ((3, 50, 4), 1), ((2, 9000), 1), ((300, 40), 0), ((6, 40, 3), 1), ((70_000,), 0)]
SCANS = {"cumsum": cuda_sort_scan.CUMSUM_CUDA, "cumprod": cuda_sort_scan.CUMPROD_CUDA}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("float16", "bfloat16")])
def test_scans(dtype: str, name: str, exclusive: bool, reverse: bool) -> None:
    for shape, axis in LINES:
        x = random_factors(dtype, shape) if name == "cumprod" else random(dtype, shape, True, special=False)
        attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
        (found,) = run(SCANS[name], name, x, **attrs)
        wanted = expected_scan(name, x, **attrs)
        if dtype.startswith("float"):
            precision = 1e-5 if dtype == "float32" else 1e-11
            np.testing.assert_allclose(found, wanted, rtol=precision, atol=precision if name == "cumsum" else 0)
        else:
            np.testing.assert_array_equal(found, wanted)


def product(x: Array) -> Array:
    (found,) = run(cuda_sort_scan.CUMPROD_CUDA, "cumprod", x, axis=0, exclusive=False, reverse=False)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, np.cumprod(x, dtype=x.dtype), rtol=2e-5, atol=0)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_that_leave_the_range(dtype: str) -> None:
    """An infinity stays one, but for a zero or nan after it; what becomes zero stays zero, but for an infinity or nan; and what
    loses digits has lost them."""
    great = 1e30 if dtype == "float32" else 1e300
    ones = np.ones(9000, dtype)
    for at in (5, 2047, 2048, 5000, 8990):
        x = ones.copy()
        x[at : at + 3] = great
        for later, factor in ((at + 8, 0), (at + 9, 1 / great), (8999, 0), (8998, -1)):
            x[later] = factor
            product(x)
        assert np.isnan(product(x)[-1])
        x = ones.copy()
        x[at : at + 3] = 1 / great
        product(x)
        x[at + 5] = great
        x[-1] = np.inf
        assert np.isnan(product(x)[-1])
        x = ones.copy()
        x[at : at + 2] = (0, np.inf)
        assert np.isnan(product(x)[-1])
    rng = np.random.default_rng(5)
    product(rng.uniform(0, 1, 9000).astype(dtype))
    product(rng.uniform(1, 9, 9000).astype(dtype))
    tiny = np.float64(np.finfo(dtype).tiny)
    x = ones.copy()
    x[0], x[1:20] = tiny, 0.7
    x[6000:6020] = 1.5
    product(x)


def test_sums_with_infinities() -> None:
    x = np.ones(9000, np.float32)
    x[3000], x[7000] = np.inf, -np.inf
    (found,) = run(cuda_sort_scan.CUMSUM_CUDA, "cumsum", x, axis=0, exclusive=False, reverse=False)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, np.cumsum(x))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    "classes, count, most", [(1, 1, 1), (3, 70, 70), (2, 1300, 40), (1, 1100, 1100), (2, 600, 500)]
)
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.97])
def test_non_max_suppression(classes: int, count: int, most: int, center: bool, threshold: float) -> None:
    check_suppression(cuda_sort_scan.SUPPRESSION_CUDA, classes, count, most, center, threshold)
