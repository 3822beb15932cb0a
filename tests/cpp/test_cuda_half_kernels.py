# SPDX-License-Identifier: Apache-2.0
"""The CUDA library kernels on f16 and bf16 against the ops' numpy references, over the fake libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op

from memc.ir.evaluate import run_op
from memc.ir.op_queries import in_place_operands
from memc.ir.types import DType
from memc.passes.kernels.select_kernels import library_kernel

HALVES = [DType.F16, DType.BF16]
TOLERANCE = {DType.F16: 2e-3, DType.BF16: 1.6e-2}
"""Two roundings, of the largest element."""

PRODUCT: Step = ("matmul", (0, 1), {"transpose_a": False, "transpose_b": True})


def some(dtype: DType, *shape: int) -> Array:
    return np.random.default_rng([7, *shape]).standard_normal(shape).astype(dtype.numpy)


def as_given(array: Array) -> Any:
    """How the compiled program hands over an array: bf16 as its bits."""
    return tvm_ffi.from_dlpack(array.view(np.uint16) if array.dtype == DType.BF16.numpy else array)


def check(
    dtype: DType, arrays: Sequence[Array], *steps: Step, workspace: int = 64, in_place: int | None = None
) -> None:
    op = make_op(arrays, steps)
    kernel = library_kernel(op, "cuda")
    assert kernel is not None
    (expected,) = run_op(op, arrays)
    expected = np.asarray(expected, np.float64)
    op.plan = replace(op.plan, library_kernel=kernel.symbol)
    assert list(in_place_operands(op)) == ([] if in_place is None else [in_place])
    given = [a.copy() for a in arrays]
    result = np.zeros(op.result.type.shape, op.result.type.dtype.numpy) if in_place is None else given[in_place]
    scratch = np.zeros(workspace + 64, np.uint8)
    for _ in range(2):
        result[...] = np.nan if in_place is None else arrays[in_place]
        tensors = [*given, result, *([scratch[:workspace]] if workspace else [])]
        tvm_ffi.get_global_func(kernel.symbol)(*map(as_given, tensors), *kernel.scalars(op))
        gap = np.abs(result.astype(np.float64) - expected).max()
        assert gap <= TOLERANCE[dtype] * np.abs(expected).max()
    assert not scratch[workspace:].any()


def rounded(dtype: DType, position: int) -> Step:
    return ("cast", (position,), {"to": dtype})


@pytest.mark.parametrize("dtype", HALVES)
def test_products(kernels: None, dtype: DType) -> None:
    a, b = some(dtype, 5, 7), some(dtype, 6, 7)
    check(dtype, [a, b], PRODUCT)  # The sums themselves, in f32.
    check(dtype, [a, b], PRODUCT, rounded(dtype, 2))
    bias, residual = some(dtype, 6), some(dtype, 5, 6)
    steps = [PRODUCT, rounded(dtype, 4), ("add", (5, 2), {}), ("add", (6, 3), {}), ("relu", (7,), {})]
    check(dtype, [a, b, bias, residual], *steps, in_place=3)
    many = [some(dtype, 3, 5, 7), some(dtype, 3, 6, 7)]
    check(dtype, many, PRODUCT, rounded(dtype, 2))


@pytest.mark.parametrize("dtype", HALVES)
def test_a_product_of_halves_updates_a_state_in_f32(kernels: None, dtype: DType) -> None:
    arrays = [some(dtype, 5, 7), some(dtype, 6, 7), some(DType.F32), some(DType.F32, 5, 6)]
    steps: list[Step] = [PRODUCT, ("mul", (4, 2), {}), ("add", (3, 5), {}), ("assign", (3, 6), {})]
    check(dtype, arrays, *steps, in_place=3)


CONVOLUTIONS = [
    # x, w, strides, pads
    ((2, 3, 8, 9), (4, 3, 3, 3), (2, 1), (1, 1, 1, 1)),
    ((2, 3, 4, 5), (6, 3, 1, 1), (1, 1), (0, 0, 0, 0)),  # A product for each image.
    ((1, 2, 12), (5, 2, 4), (3,), (2, 2)),
]


@pytest.mark.parametrize("workspace", [0, 64])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(kernels: None, dtype: DType, case: tuple[Any, ...], workspace: int) -> None:
    x, w = some(dtype, *case[0]), some(dtype, *case[1])
    attrs = {"strides": case[2], "pads": case[3], "dilations": (1,) * len(case[2]), "group": 1}
    conv: Step = ("conv", (0, 1), attrs)
    y = some(dtype, *make_op([x, w], [conv]).result.type.shape)
    check(dtype, [x, w], conv, rounded(dtype, 2), workspace=workspace)
    bias = some(dtype, w.shape[0])
    with_bias: list[Step] = [("conv", (0, 1, 2), attrs), rounded(dtype, 3), ("relu", (4,), {})]
    check(dtype, [x, w, bias], *with_bias, workspace=workspace)
    column = bias.reshape(-1, *[1] * len(case[2]))
    added: list[Step] = [conv, rounded(dtype, 4), ("add", (5, 2), {}), ("add", (6, 3), {}), ("relu", (7,), {})]
    check(dtype, [x, w, column, y], *added, workspace=workspace, in_place=3)
    if not workspace:
        return  # The fake library's algorithm without is one that transforms, which gradients of halves do not take.
    kernel = {**attrs, "kernel": w.shape[2:]}
    check(dtype, [x, y], ("conv_grad_weight", (0, 1), kernel), rounded(dtype, 2), workspace=workspace)
    rank = len(case[2])
    free = make_op([y, w], [("conv_transpose", (0, 1), {**attrs, "output_padding": (0,) * rank})]).result.type.shape
    padding = tuple(n - m for n, m in zip(x.shape[2:], free[2:]))
    back: Step = ("conv_transpose", (0, 1), {**attrs, "output_padding": padding})
    check(dtype, [y, w], back, rounded(dtype, 2), workspace=workspace)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_stays_generated(dtype: DType) -> None:
    x, w, bias = some(dtype, 1, 3, 6, 6), some(dtype, 4, 3, 3, 3), some(dtype, 4, 1, 1)
    conv: Step = ("conv", (0, 1), {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "group": 1})
    other = HALVES[1 - HALVES.index(dtype)]
    a, b = some(dtype, 5, 7), some(dtype, 6, 7)
    for arrays, steps in (
        ([x, w], [conv]),  # The library has no f32 result.
        (
            [x, w, bias],
            [conv, rounded(dtype, 3), ("add", (4, 2), {})],
        ),  # A bias without ReLU is better fused with others.
        ([x, w], [conv, rounded(other, 2)]),
        ([a, b], [PRODUCT, rounded(other, 2)]),
        ([a, b], [PRODUCT, rounded(dtype, 2), rounded(DType.F32, 3)]),
        ([a, b, some(DType.F32, 6)], [PRODUCT, ("add", (3, 2), {}), rounded(dtype, 4)]),  # A bias of another type.
        ([a, b, some(dtype)], [PRODUCT, rounded(dtype, 3), ("mul", (4, 2), {})]),  # Scales are f32.
    ):
        assert library_kernel(make_op(arrays, steps), "cuda") is None


@pytest.mark.parametrize("dtype", HALVES)
def test_workspaces_hold_copies_with_channels_last(dtype: DType) -> None:
    """Of all images for gradients of weights, which would be rounded at each part, with room for sums by several blocks;
    else of a part of them."""
    x, y, w = some(dtype, 4, 3, 7, 8), some(dtype, 4, 5, 7, 8), some(dtype, 5, 3, 3, 3)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    both = 2 * 4 * 8 * 7 * 8 * 2
    sums = 512 * 8 * 8 * 3 * 3
    for steps, arrays, needed in (
        ([("conv_grad_weight", (0, 1), {**attrs, "kernel": (3, 3)}), rounded(dtype, 2)], [x, y], both + sums),
        ([("conv", (0, 1), attrs), rounded(dtype, 2)], [x, w], both // 4),
    ):
        op = make_op(arrays, steps)
        kernel = library_kernel(op, "cuda")
        assert kernel is not None and kernel.workspace is not None
        least, most = kernel.workspace(op)
        assert needed < least < needed + 25_000 and most >= both + least - needed


@pytest.mark.parametrize("dtype", HALVES)
def test_why_there_is_no_algorithm(kernels: None, monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    monkeypatch.setenv("FAKE_CUDNN_IMAGE_BYTES", "64")
    x, w = some(dtype, 3, 3, 5, 6), some(dtype, 4, 3, 3, 3)
    attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "group": 1}
    op = make_op([x, w], [("conv", (0, 1), attrs), rounded(dtype, 2)])
    kernel = library_kernel(op, "cuda")
    assert kernel is not None
    result, scratch = np.zeros(op.result.type.shape, dtype.numpy), np.zeros(64, np.uint8)
    words = "planned are 64 bytes for x 3x3x5x6 and w 4x3x3x3, it has .* 1: 192, 0;"
    with pytest.raises(ValueError, match=words):
        tvm_ffi.get_global_func(kernel.symbol)(*map(as_given, [x, w, result, scratch]), *kernel.scalars(op))


@pytest.mark.parametrize("dtype", HALVES)
def test_algorithms_that_transform_are_the_last_resort(
    kernels: None, capfd: pytest.CaptureFixture[str], dtype: DType
) -> None:
    """The fake library has one that does without workspace, and one that does not with 64 bytes."""
    x, y = some(dtype, 2, 3, 9, 6), some(dtype, 2, 4, 9, 6)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, "kernel": (3, 3)}
    for workspace in (64, 0):
        check(dtype, [x, y], ("conv_grad_weight", (0, 1), attrs), rounded(dtype, 2), workspace=workspace)
        assert ("differs in its last bits" in capfd.readouterr().err) == (workspace == 0)


def test_types_that_do_not_fit_each_other_are_refused(kernels: None) -> None:
    a, b = some(DType.F16, 3, 4), some(DType.F32, 4, 5)
    scalars = (2, -1, 0, 0, 0, -1, -1, 0)
    with pytest.raises(ValueError, match="two factors of one type"):
        tvm_ffi.get_global_func("memc.cuda.matmul")(*map(as_given, [a, b, some(DType.F32, 3, 5)]), *scalars)
    with pytest.raises(ValueError, match="f32 or of the factors' type"):
        wrong = [a, b.astype(np.float16), some(DType.BF16, 3, 5)]
        tvm_ffi.get_global_func("memc.cuda.matmul")(*map(as_given, wrong), *scalars)
