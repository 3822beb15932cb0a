# SPDX-License-Identifier: Apache-2.0
"""Gradients of depthwise convolutions against the ops' numpy references: the kernels' source, compiled for the host, on
fibers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op
from split_calls import check_way

from memc.passes.kernels.select_kernels import library_kernel

RNG = np.random.default_rng(10)

CASES = [
    # x, filters of a channel, taps, strides, pads
    ((2, 3, 9, 11), 1, 3, (1, 1), (1, 1)),
    ((3, 4, 12, 13), 2, 5, (2, 2), (2, 1)),
    ((1, 5, 15, 10), 1, 7, (1, 1), (3, 0)),
    ((2, 2, 8, 9), 3, 3, (2, 2), (0, 2)),
    ((5, 3, 7, 7), 1, 5, (1, 1), (2, 2)),
    ((2, 3, 17, 15), 1, 7, (2, 2), (3, 3)),
]


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


@pytest.fixture
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


def operands(case: tuple[Any, ...]) -> tuple[Array, Array, Array, dict[str, Any]]:
    """x, w, a gradient of the result, and attributes."""
    shape, multiplier, taps, strides, pads = case
    attrs = {"strides": strides, "pads": pads * 2, "dilations": (1, 1), "group": shape[1]}
    x, w = some(*shape), some(shape[1] * multiplier, 1, taps, taps)
    return x, w, some(*make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape), attrs


@pytest.mark.parametrize("case", CASES)
def test_gradients_in_images(own: None, fake: Path, case: tuple[Any, ...]) -> None:
    x, w, g, attrs = operands(case)
    taps, strides, pads = case[2:]
    extra = tuple(n + 2 * p - s * (o - 1) - taps for n, p, s, o in zip(x.shape[2:], pads, strides, g.shape[2:]))
    step: Step = ("conv_transpose", (0, 1, 2), {**attrs, "output_padding": extra})
    check_way(fake, [g, w, some(x.shape[1])], step, way=(0, 1), kind=5)


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("case", [*CASES, ((2, 3, 11, 8), 1, 3, (3, 2), (1, 1))])
def test_gradients_in_weights(own: None, fake: Path, case: tuple[Any, ...], splits: int) -> None:
    x, w, g, attrs = operands(case)
    step: Step = ("conv_grad_weight", (0, 1), {**attrs, "kernel": w.shape[2:]})
    check_way(fake, [x, g], step, way=(0, splits), kind=5)


@pytest.mark.parametrize(
    ("taps", "dilation", "dtype", "there"),
    [((3, 3), 1, np.float32, True), ((5, 3), 1, np.float32, False), ((9, 9), 1, np.float32, False)]
    + [((3, 3), 2, np.float32, False), ((3, 3), 1, np.float16, False)],
)
def test_calls_in_weights_that_have_a_kernel(taps: tuple[int, int], dilation: int, dtype: Any, there: bool) -> None:
    x, w = some(2, 4, 20, 20).astype(dtype), some(4, 1, *taps).astype(dtype)
    attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (dilation,) * 2, "group": 4}
    g = some(*make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape).astype(dtype)
    op = make_op([x, g], [("conv_grad_weight", (0, 1), {**attrs, "kernel": taps})])
    kernel = library_kernel(op, "cuda")
    assert (kernel is not None) == there
    assert kernel is None or (kernel.workspace is not None and kernel.workspace(op) == (0, 0))
