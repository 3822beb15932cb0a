# SPDX-License-Identifier: Apache-2.0
"""Convolutions of images with channels last against their numpy reference, over fake libraries that compute on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from library_groups import Array, Step, check, make_op

from memc.ir.types import DType
from memc.passes.kernels.select_kernels import library_kernel

RNG = np.random.default_rng(6)

FORWARD, ACTIVATED = "cudnnConvolutionForward", "cudnnConvolutionBiasActivationForward"

DATA, WEIGHTS = "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def attributes(case: tuple[Any, ...]) -> dict[str, Any]:
    return {"strides": case[2], "pads": case[3], "dilations": case[4], "group": 1}


CASES = [
    # x, w, strides, pads, dilations
    ((2, 8, 9, 4), (8, 3, 3, 4), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((1, 9, 8, 8), (4, 3, 2, 8), (2, 1), (1, 0, 1, 0), (2, 1)),
    ((2, 8, 8, 4), (12, 3, 3, 4), (2, 2), (1, 1, 0, 0), (1, 1)),  # No window reaches the last pad.
    ((3, 4, 5, 8), (4, 1, 1, 8), (1, 1), (0, 0, 0, 0), (1, 1)),  # One product.
    ((1, 4, 5, 6, 4), (8, 2, 3, 1, 4), (1, 2, 1), (0, 1, 0, 0, 1, 0), (1, 1, 1)),
    ((2, 3, 2, 4, 4), (8, 1, 1, 1, 4), (1, 1, 1), (0,) * 6, (1, 1, 1)),
]


@pytest.mark.parametrize("fails", ["", FORWARD, ACTIVATED])
@pytest.mark.parametrize("workspace", [0, 64])
@pytest.mark.parametrize("case", CASES)
def test_convolutions_with_channels_last(
    kernels: None, monkeypatch: pytest.MonkeyPatch, case: tuple[Any, ...], workspace: int, fails: str
) -> None:
    """By cuDNN with all that follows, without, and as products."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", fails)
    images, *rest = case[0]
    if fails == FORWARD:  # Each is a call site of its own, which keeps what it has chosen.
        images += 3
    elif fails:
        images += 6
    x, w = some(images, *rest), some(*case[1])
    pointwise = set(case[1][1:-1]) == {1}
    conv: Step = ("conv_channels_last", (0, 1), attributes(case))
    symbol = "memc.cuda.conv_channels_last"
    if fails != FORWARD or pointwise:
        check([x, w], conv, symbol=symbol, workspace=workspace)
    bias = some(w.shape[0])
    with_bias: Step = ("conv_channels_last", (0, 1, 2), conv[2])
    check([x, w, bias], with_bias, ("relu", (3,), {}), symbol=symbol, workspace=workspace)
    result = make_op([x, w], [conv]).result.type.shape
    added: list[Step] = [with_bias, ("add", (3, 4), {}), ("relu", (5,), {})]
    check([x, w, bias, some(*result)], *added, symbol=symbol, workspace=workspace)
    check([x, w, bias, some(*result)], *added, symbol=symbol, workspace=workspace, in_place=3)


@pytest.mark.parametrize("fails", ["", DATA, WEIGHTS])
@pytest.mark.parametrize("workspace", [0, 64])
@pytest.mark.parametrize("case", CASES)
def test_gradients_with_channels_last(
    kernels: None, monkeypatch: pytest.MonkeyPatch, case: tuple[Any, ...], workspace: int, fails: str
) -> None:
    """By cuDNN and, of convolutions that are products, by those."""
    pointwise = set(case[1][1:-1]) == {1}
    if fails and not pointwise:
        return
    monkeypatch.setenv("FAKE_CUDA_FAILS", fails)
    images, *rest = case[0]
    attrs, w = attributes(case), some(*case[1])
    x = some(images + 9 * bool(fails), *rest)
    y = some(*make_op([x, w], [("conv_channels_last", (0, 1), attrs)]).result.type.shape)
    rank = len(attrs["strides"])
    if fails != WEIGHTS:
        step: Step = ("conv_transpose_channels_last", (0, 1), {**attrs, "output_padding": (0,) * rank})
        free = make_op([y, w], [step]).result.type.shape
        padding = tuple(n - m for n, m in zip(x.shape[1:-1], free[1:-1]))
        steps: list[Step] = [(step[0], (0, 1), {**attrs, "output_padding": padding})]
        check([y, w], *steps, symbol="memc.cuda.conv_transpose_channels_last", workspace=workspace)
    if fails != DATA:
        of_w: Step = ("conv_grad_weight_channels_last", (0, 1), {**attrs, "kernel": w.shape[1:-1]})
        check([x, y], of_w, symbol="memc.cuda.conv_grad_weight_channels_last", workspace=workspace)


def test_convolutions_with_channels_last_that_stay_generated() -> None:
    """Channels that are not whole vectors, groups, and one axis."""
    plain = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1}
    for x, w, attrs in (
        ((1, 5, 5, 6), (8, 3, 3, 6), plain),
        ((1, 5, 5, 8), (6, 3, 3, 8), plain),
        ((1, 5, 5, 8), (8, 3, 3, 4), {**plain, "group": 2}),
        ((1, 5, 8), (8, 3, 8), {"strides": (1,), "pads": (0,) * 2, "dilations": (1,), "group": 1}),
    ):
        assert library_kernel(make_op([some(*x), some(*w)], [("conv_channels_last", (0, 1), attrs)]), "cuda") is None
    halves = [some(1, 5, 5, 4).astype(np.float16), some(8, 3, 3, 4).astype(np.float16)]
    steps: list[Step] = [("conv_channels_last", (0, 1), plain), ("cast", (2,), {"to": DType.F16})]
    assert library_kernel(make_op(halves, steps), "cuda") is None
    wide = [some(1, 5, 5, 8).astype(np.float16), some(8, 3, 3, 8).astype(np.float16)]
    kernel = library_kernel(make_op(wide, steps), "cuda")
    assert kernel is not None and kernel.symbol == "memc.cuda.conv_channels_last"
