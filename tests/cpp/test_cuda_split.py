# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels against the ops' numpy references: their source, compiled for the host, on fibers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op
from split_calls import WAYS, assert_near, call, check_way, choose, launches_of, new_workspace

RNG = np.random.default_rng(6)


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


@pytest.fixture
def split(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


PLAIN = {"transpose_a": False, "transpose_b": False}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("lead_a", "lead_b", "m", "k", "n"),
    [
        ((), (), 70, 300, 130),
        ((), (), 33, 257, 35),
        ((3,), (3,), 20, 64, 24),
        ((2,), (), 5, 40, 33),
        ((), (2,), 4, 36, 8),
    ],
)
@pytest.mark.parametrize("transpose_b", [False, True])
def test_products(
    split: None,
    fake: Path,
    lead_a: tuple[int, ...],
    lead_b: tuple[int, ...],
    m: int,
    k: int,
    n: int,
    transpose_b: bool,
    way: tuple[int, int],
) -> None:
    a, b = some(*lead_a, m, k), some(*lead_b, *((n, k) if transpose_b else (k, n)))
    product: Step = ("matmul", (0, 1), {"transpose_a": False, "transpose_b": transpose_b})
    check_way(fake, [a, b], product, way=way)


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("in_place", [None, 2])
def test_what_follows_a_product(split: None, fake: Path, splits: int, in_place: int | None) -> None:
    a, b, c, scale, bias = some(2, 37, 70), some(2, 70, 41), some(2, 37, 41), some(), some(41)
    steps = [
        ("matmul", (0, 1), PLAIN),
        ("mul", (5, 3), {}),
        ("add", (6, 4), {}),
        ("add", (2, 7), {}),
        ("relu", (8,), {}),
    ]
    check_way(fake, [a, b, c, scale, bias], *steps, way=(1, splits), in_place=in_place)


def test_relu_passes_nan_on(split: None) -> None:
    a, b = some(8, 32), some(32, 8)
    a[3, 5] = np.nan
    op = make_op([a, b], [("matmul", (0, 1), PLAIN), ("relu", (2,), {})])
    result = np.zeros((8, 8), np.float32)
    workspace = choose(lambda n: call(op, [a, b], result, np.zeros(n, np.uint8)), 0, 1)
    call(op, [a, b], result, np.zeros(workspace, np.uint8))
    assert np.isnan(result[3]).all() and np.isfinite(np.delete(result, 3, 0)).all()


CONVOLUTIONS = [
    # x, w, strides, pads, dilations
    ((2, 5, 13, 11), (37, 5, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((1, 20, 9, 8), (6, 20, 3, 2), (2, 1), (1, 0, 1, 0), (2, 1)),
    ((2, 3, 14, 14), (33, 3, 7, 7), (2, 2), (3, 3, 2, 2), (1, 1)),
    ((1, 9, 40), (5, 9, 4), (3,), (2, 2), (1,)),
    ((3, 35, 7, 7), (66, 35, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((2, 16, 6, 6), (12, 16, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(split: None, fake: Path, case: tuple[Any, ...], way: tuple[int, int]) -> None:
    x, w, bias = some(*case[0]), some(*case[1]), some(case[1][0])
    attrs = {"strides": case[2], "pads": case[3], "dilations": case[4], "group": 1}
    residual = some(*make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape)
    steps: list[Step] = [("conv", (0, 1, 2), attrs), ("add", (3, 4), {}), ("relu", (5,), {})]
    check_way(fake, [x, w, bias, residual], *steps, way=way)
    check_way(fake, [x, w, bias, residual], *steps, way=way, in_place=3)


def test_kernels_are_among_the_ways(split: None, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library fails, one of them is taken."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cublasLtMatmul")
    a, b, launches = some(40, 96), some(96, 50), launches_of(fake)
    before = launches.value
    op, result = make_op([a, b], [("matmul", (0, 1), PLAIN)]), np.zeros((40, 50), np.float32)
    call(op, [a, b], result, np.zeros(new_workspace(), np.uint8))
    assert_near(result, a.astype(np.float64) @ b)
    assert launches.value > before
    with pytest.raises(ValueError, match="no algorithm"):  # They read no transposed left matrix.
        a, b = some(96, 40), some(50, 96)
        op = make_op([a, b], [("matmul", (0, 1), {"transpose_a": True, "transpose_b": True})])
        call(op, [a, b], result, np.zeros(new_workspace(), np.uint8))
