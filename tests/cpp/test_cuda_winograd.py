# SPDX-License-Identifier: Apache-2.0
"""Convolutions by minimal filtering against the ops' numpy references: the kernels' source, compiled for the host, on fibers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op
from split_calls import assert_near, call, check_way, choose, new_workspace

from memc.ir.evaluate import run_op

RNG = np.random.default_rng(8)
WORKS = {0: 64, 1: 32}
"""The kernels, by how many filters a block has."""

WINOGRAD = {"kind": 3, "launches": 2}
"""They are launched behind one that transforms the weights."""


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


@pytest.fixture
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


def transformed_bytes(filters: int, channels: int, work: int) -> int:
    """Of the transformed weights of so many filters of the result."""
    return 16 * 4 * -(-channels // 4) * 4 * -(-filters // WORKS[work]) * WORKS[work]


CASES = [
    # x, filters, pads
    ((2, 5, 13, 11), 37, (1, 1)),
    ((1, 20, 9, 8), 6, (0, 2)),
    ((3, 8, 7, 7), 66, (1, 1)),
    ((2, 3, 16, 10), 32, (2, 0)),
    ((1, 4, 3, 3), 65, (0, 0)),
    ((5, 9, 4, 6), 33, (1, 1)),
]


def attributes(pads: tuple[int, int]) -> dict[str, Any]:
    return {"strides": (1, 1), "pads": (*pads, *pads), "dilations": (1, 1), "group": 1}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("case", CASES)
def test_convolutions(own: None, fake: Path, case: tuple[Any, ...], work: int) -> None:
    shape, filters, pads = case
    attrs = attributes(pads)
    x, w, bias = some(*shape), some(filters, shape[1], 3, 3), some(filters)
    residual = some(*make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape)
    least = transformed_bytes(filters, shape[1], work)
    steps: list[Step] = [("conv", (0, 1, 2), attrs), ("add", (3, 4), {}), ("relu", (5,), {})]
    check_way(fake, [x, w], ("conv", (0, 1), attrs), way=(work, 0), **WINOGRAD, least=least)
    check_way(fake, [x, w, bias, residual], *steps, way=(work, 0), **WINOGRAD, least=least)
    check_way(fake, [x, w, bias, residual], *steps, way=(work, 0), **WINOGRAD, least=least, in_place=3)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("case", CASES)
def test_gradients_in_images(own: None, fake: Path, case: tuple[Any, ...], work: int) -> None:
    shape, filters, pads = case
    attrs = attributes(pads)
    w = some(filters, shape[1], 3, 3)
    y = some(*make_op([some(*shape), w], [("conv", (0, 1), attrs)]).result.type.shape)
    step: Step = ("conv_transpose", (0, 1), {**attrs, "output_padding": (0, 0)})
    check_way(fake, [y, w], step, way=(work, 0), **WINOGRAD, least=transformed_bytes(shape[1], filters, work))


def test_relu_passes_nan_on(own: None, fake: Path) -> None:
    x, w = some(1, 4, 8, 8), some(5, 4, 3, 3)
    x[0, 2, 5, 5] = np.nan
    attrs = attributes((1, 1))
    op = make_op([x, w], [("conv", (0, 1), attrs), ("relu", (2,), {})])
    result = np.zeros((1, 5, 8, 8), np.float32)
    scratch = np.zeros(1 << 16, np.float32).view(np.uint8)
    least = transformed_bytes(5, 4, 0) + new_workspace()
    choose(lambda n: call(op, [x, w], result, scratch[:n]), 0, 0, 3, least)
    call(op, [x, w], result, scratch[:least])
    assert np.isnan(result[0, :, 4:7, 4:7]).all() and np.isfinite(result[0, :, :4, :4]).all()


@pytest.mark.parametrize("enough", [False, True])
def test_kernels_are_among_the_ways_that_fit(
    own: None, fake: Path, monkeypatch: pytest.MonkeyPatch, enough: bool
) -> None:
    """Where the library fails, one of them is taken, if there is workspace for the weights."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionBackwardData")
    y, w = some(1, 6, 9, 9), some(6, 5, 3, 3)
    step: Step = ("conv_transpose", (0, 1), {**attributes((1, 1)), "output_padding": (0, 0)})
    op, result = make_op([y, w], [step]), np.zeros((1, 5, 9, 9), np.float32)
    least = transformed_bytes(5, 6, 1)
    scratch = np.zeros(least + 16, np.uint8)
    begin = -scratch.ctypes.data % 16
    workspace = scratch[begin : begin + least - (0 if enough else 1)]
    if not enough:
        with pytest.raises(ValueError, match="no algorithm"):
            call(op, [y, w], result, workspace)
        return
    call(op, [y, w], result, workspace)
    wide = [y.astype(np.float64), w.astype(np.float64)]
    assert_near(result, run_op(make_op(wide, [step]), wide)[0])
