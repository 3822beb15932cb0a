# SPDX-License-Identifier: Apache-2.0
"""Convolutions by minimal filtering against the ops' numpy references: the kernels' source, compiled for the host, on fibers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op
from split_calls import assert_near, call, check_way, choose, launches_of, new_workspace

from memc.ir.evaluate import run_op

RNG = np.random.default_rng(8)
WORKS = {0: (64, 8), 1: (32, 4)}
"""The kernels, by how many filters a block has, and a stage channels."""

WINOGRAD = {"kind": 3, "launches": 2}
"""They are launched behind one that transforms the weights."""


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


@pytest.fixture
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


def transformed_bytes(filters: int, channels: int, work: int) -> int:
    """Of the transformed weights of so many filters of the result."""
    of_block, of_stage = WORKS[work]
    return 16 * 4 * -(-channels // of_stage) * of_stage * -(-filters // of_block) * of_block


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


VOLUMES = [
    # x, filters, taps, strides, pads and dilations of the first axis, pads of the others
    ((2, 5, 4, 9, 8), 37, 3, (1, 1, 1), (1, 1)),
    ((1, 8, 5, 5, 6), 6, 2, (2, 0, 1), (0, 2)),
    ((3, 3, 5, 4, 4), 33, 3, (1, 2, 2), (1, 1)),
]


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("case", VOLUMES)
def test_volumes(own: None, fake: Path, case: tuple[Any, ...], work: int) -> None:
    shape, filters, taps, (stride, pad, dilation), pads = case
    both = (pad, *pads)
    attrs = {"strides": (stride, 1, 1), "pads": both * 2, "dilations": (dilation, 1, 1), "group": 1}
    x, w, bias = some(*shape), some(filters, shape[1], taps, 3, 3), some(filters)
    result = make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape
    least = taps * transformed_bytes(filters, shape[1], work)
    steps: list[Step] = [("conv", (0, 1, 2), attrs), ("add", (3, 4), {}), ("relu", (5,), {})]
    check_way(fake, [x, w, bias, some(*result)], *steps, way=(work, 0), **WINOGRAD, least=least, in_place=3)
    if stride == 1:
        step: Step = ("conv_transpose", (0, 1), {**attrs, "output_padding": (0, 0, 0)})
        least = taps * transformed_bytes(shape[1], filters, work)
        check_way(fake, [some(*result), w], step, way=(work, 0), **WINOGRAD, least=least)


@pytest.mark.parametrize("work", WORKS)
def test_copies_may_arrive_at_once(own: None, fake: Path, monkeypatch: pytest.MonkeyPatch, work: int) -> None:
    """And not where they are still in the way; each of the three blocks has several turns."""
    monkeypatch.setenv("FAKE_CUDA_EAGER", "1")
    x, w = some(2, 9, 30, 31), some(40, 9, 3, 3)
    step: Step = ("conv", (0, 1), attributes((1, 1)))
    check_way(fake, [x, w], step, way=(work, 0), **WINOGRAD, least=transformed_bytes(40, 9, work))


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize(
    "case",
    [
        # Many of the filters or few, rows and columns of odd lengths, an image alone.
        ((2, 5, 31, 26), 37, (1, 1)),
        ((3, 8, 23, 24), 66, (1, 1)),
        ((3, 4, 27, 25), 40, (0, 1)),
        ((1, 3, 20, 21), 70, (2, 2)),
        ((1, 4, 66, 64), 5, (1, 1)),
    ],
)
def test_transformed_weights_in_the_result(own: None, fake: Path, case: tuple[Any, ...], work: int) -> None:
    """Without workspace the last results are computed by another kernel, in the end."""
    shape, filters, pads = case
    attrs = attributes(pads)
    x, w, bias = some(*shape), some(filters, shape[1], 3, 3), some(filters)
    residual = some(*make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape)
    steps: list[Step] = [("conv", (0, 1, 2), attrs), ("add", (3, 4), {}), ("relu", (5,), {})]
    check_way(fake, [x, w], ("conv", (0, 1), attrs), way=(work, 1), kind=3, launches=3)
    check_way(fake, [x, w, bias, residual], *steps, way=(work, 1), kind=3, launches=3)
    # x is the gradient of what has so many channels.
    w = some(shape[1], filters, 3, 3)
    step: Step = ("conv_transpose", (0, 1), {**attrs, "output_padding": (0, 0)})
    check_way(fake, [x, w], step, way=(work, 1), kind=3, launches=3)


def test_a_residual_in_the_result_stays_there_until_it_is_read(
    own: None, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without workspace, then, and without the library, kernels that need none are taken."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionForward")
    x, w, residual = some(1, 3, 40, 30), some(70, 3, 3, 3), some(1, 70, 40, 30)
    op = make_op([x, w, residual], [("conv", (0, 1), attributes((1, 1))), ("add", (2, 3), {}), ("relu", (4,), {})])
    (expected,) = run_op(op, [x, w, residual])
    workspace = new_workspace()
    for launches in (None, 1):
        result = residual.copy()
        before = launches_of(fake).value
        call(op, [x, w, result], result, np.zeros(workspace, np.uint8))
        assert_near(result, expected)
        assert launches is None or launches_of(fake).value == before + launches


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


def test_devices_with_little_shared_memory_have_no_such_kernels(fake: Path) -> None:
    """One of the kernels takes 96 KiB a block, more than devices of sm_75 give; the other 48."""
    program = """
import numpy as np, sys, tvm_ffi
sys.path.insert(0, sys.argv[1])
from library_groups import make_op
from split_calls import call
from test_cuda_winograd import attributes, some, transformed_bytes
from memc import native
native.load()
tvm_ffi.get_global_func("memc.cuda.set_libraries")(*[sys.argv[2]] * 3)
tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")
y, w = some(1, 6, 9, 9), some(6, 5, 3, 3)
op = make_op([y, w], [("conv_transpose", (0, 1), {**attributes((1, 1)), "output_padding": (0, 0)})])
scratch = np.zeros(transformed_bytes(5, 6, 0) + 16, np.uint8)
call(op, [y, w], np.zeros((1, 5, 9, 9), np.float32), scratch[-scratch.ctypes.data % 16 :])
"""
    given = {**os.environ, "FAKE_CUDA_FAILS": "cudnnConvolutionBackwardData"}
    command = [sys.executable, "-c", program, str(Path(__file__).parent), str(fake)]
    for limit, works in (("99000", True), ("49152", True), ("40000", False)):
        given["FAKE_CUDA_SHARED"] = limit
        done = subprocess.run(command, capture_output=True, text=True, env=given)
        assert (done.returncode == 0) == works, done.stderr
        assert works or "no algorithm" in done.stderr


@pytest.mark.parametrize("size", [40, 6])
def test_kernels_without_workspace_are_among_the_ways(
    own: None, fake: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Where the library fails; if one image's results take as many bytes as the transformed weights."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionForward")
    x, w = some(2, 3, size, size), some(40, 3, 3, 3)
    step: Step = ("conv", (0, 1), attributes((1, 1)))
    op, result = make_op([x, w], [step]), np.zeros((2, 40, size, size), np.float32)
    scratch = np.zeros(new_workspace(), np.uint8)
    call(op, [x, w], result, scratch)
    before = launches_of(fake).value
    call(op, [x, w], result, scratch)
    assert launches_of(fake).value == before + (3 if size == 40 else 1)
    wide = [x.astype(np.float64), w.astype(np.float64)]
    assert_near(result, run_op(make_op(wide, [step]), wide)[0])
