# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: every tile of memc's own kernels, minimal filtering and sums of products, against numpy.
Skips itself elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from library_groups import Array, Step, make_op
from split_calls import WAYS, assert_near, call, choose, new_workspace, rounded_to_tf32

from memc.ir.evaluate import run_op

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(7)


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


CASES: list[tuple[list[Array], list[Step]]] = [
    (
        [some(3, 70, 300), some(3, 300, 130), some(130)],
        [("matmul", (0, 1), {"transpose_a": False, "transpose_b": False}), ("add", (3, 2), {}), ("relu", (4,), {})],
    ),
    ([some(33, 257), some(35, 257)], [("matmul", (0, 1), {"transpose_a": False, "transpose_b": True})]),
    (
        [some(2, 21, 13, 11), some(37, 21, 3, 3), some(37)],
        [("conv", (0, 1, 2), {"strides": (2, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1})],
    ),
    (
        [some(2, 64, 7, 7), some(96, 64, 1, 1), some(96)],
        [("conv", (0, 1, 2), {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1})],
    ),
]


CallWith = Callable[[int], None]
"""Makes a call with so many bytes of workspace."""


def check(
    arrays: Sequence[Array],
    steps: Sequence[Step],
    workspace_of: Callable[[CallWith], int],
    tf32: bool = False,
    rounds: bool | None = None,
) -> None:
    """`workspace_of` says with how many bytes of workspace the call takes what shall be tested; `tf32`: whether factors, the
    first two operands, may be rounded to TF32, which they are if the kernel `rounds`."""
    import tvm

    op = make_op(arrays, steps)
    wide = [a.astype(np.float64) for a in arrays]
    if tf32:
        op.plan = replace(op.plan, precision="tf32")
    if tf32 if rounds is None else rounds:
        wide[:2] = [rounded_to_tf32(a).astype(np.float64) for a in arrays[:2]]
    (expected,) = run_op(make_op(wide, steps), wide)
    device = tvm.cuda(0)
    given = [tvm.runtime.tensor(a, device) for a in arrays]
    result = tvm.runtime.tensor(np.full(op.result.type.shape, np.nan, np.float32), device)

    def call_with(workspace: int) -> None:
        call(op, given, result, tvm.runtime.empty((workspace,), "uint8", device))

    workspace = workspace_of(call_with)
    result.copyfrom(np.full(op.result.type.shape, np.nan, np.float32))
    call_with(workspace)
    assert_near(result.numpy(), expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("arrays", "steps"), CASES)
def test_every_tile(kernels: None, arrays: Sequence[Array], steps: Sequence[Step], way: tuple[int, int]) -> None:
    check(arrays, steps, lambda call_with: choose(call_with, *way))


SQUARE = {"strides": (1, 1), "pads": (1, 0, 1, 0), "dilations": (1, 1), "group": 1}
WINOGRAD: list[tuple[list[Array], list[Step]]] = [
    (
        [some(3, 21, 13, 12), some(70, 21, 3, 3), some(70), some(3, 70, 13, 10)],
        [("conv", (0, 1, 2), SQUARE), ("add", (3, 4), {}), ("relu", (5,), {})],
    ),
    ([some(2, 37, 14, 9), some(37, 40, 3, 3)], [("conv_transpose", (0, 1), {**SQUARE, "output_padding": (0, 0)})]),
]


@pytest.mark.parametrize("work", [0, 1])
@pytest.mark.parametrize(("arrays", "steps"), WINOGRAD)
def test_minimal_filtering(kernels: None, arrays: Sequence[Array], steps: Sequence[Step], work: int) -> None:
    enough = 1 << 20
    check(arrays, steps, lambda call_with: choose(call_with, work, 0, 3, enough + new_workspace()))


@pytest.mark.parametrize("work", [0, 1])
def test_minimal_filtering_without_workspace(kernels: None, work: int) -> None:
    arrays = [some(3, 21, 56, 50), some(70, 21, 3, 3), some(70), some(3, 70, 56, 48)]
    check(arrays, WINOGRAD[0][1], lambda call_with: choose(call_with, work, 1, 3))


VOLUME = {"strides": (1, 1, 1), "pads": (1, 0, 1, 1, 0, 1), "dilations": (1, 1, 1), "group": 1}
VOLUMES: list[tuple[list[Array], list[Step]]] = [
    (
        [some(2, 21, 5, 13, 12), some(70, 21, 3, 3, 3), some(70), some(2, 70, 5, 11, 12)],
        [("conv", (0, 1, 2), VOLUME), ("add", (3, 4), {}), ("relu", (5,), {})],
    ),
    (
        [some(2, 37, 4, 9, 7), some(37, 40, 3, 3, 3)],
        [("conv_transpose", (0, 1), {**VOLUME, "output_padding": (0, 0, 0)})],
    ),
    (
        [some(2, 21, 5, 13, 12), some(2, 70, 5, 11, 12)],
        [("conv_grad_weight", (0, 1), {**VOLUME, "kernel": (3, 3, 3)})],
    ),
]


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("tile", range(9))
@pytest.mark.parametrize(("arrays", "steps"), VOLUMES)
def test_patches(kernels: None, arrays: Sequence[Array], steps: Sequence[Step], tile: int, splits: int) -> None:
    check(arrays, steps, lambda call_with: choose(call_with, tile, splits, 4), tf32=tile < 6)


FEW_SUMS = [
    # x, w, strides, pads
    ((2, 3, 40, 37), (30, 3, 3, 3), (2, 2), (1, 1, 0, 1)),
    ((3, 20, 31, 30), (35, 20, 1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 4, 9, 20, 18), (7, 4, 3, 3, 2), (1, 2, 1), (1, 1, 1, 1, 1, 1)),
    ((16, 3, 65, 64), (64, 3, 7, 7), (2, 2), (3, 3, 3, 3)),
]


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("splits", [1, 8])
@pytest.mark.parametrize("tile", range(8, 12))
@pytest.mark.parametrize("case", FEW_SUMS)
def test_few_sums(kernels: None, case: tuple[tuple[int, ...], ...], tile: int, splits: int, tf32: bool) -> None:
    """Gradients in weights of many places, added up in three tables; in f32 also where TF32 is allowed."""
    x, w, strides, pads = some(*case[0]), some(*case[1]), case[2], case[3]
    attrs = {"strides": strides, "pads": pads, "dilations": (1,) * len(strides), "group": 1}
    g = some(*make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape)
    steps: list[Step] = [("conv_grad_weight", (0, 1), {**attrs, "kernel": w.shape[2:]})]
    least = 12 * w.size + 1024
    check(
        [x, g],
        steps,
        lambda call_with: choose(call_with, tile, splits, 4, least + new_workspace(), 3),
        tf32=tf32,
        rounds=False,
    )


@pytest.mark.parametrize("work", [0, 1])
@pytest.mark.parametrize(("arrays", "steps"), VOLUMES[:2])
def test_minimal_filtering_of_volumes(kernels: None, arrays: Sequence[Array], steps: Sequence[Step], work: int) -> None:
    check(arrays, steps, lambda call_with: choose(call_with, work, 0, 3, (1 << 21) + new_workspace()))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [3, 5, 7])
def test_depthwise_gradients(kernels: None, taps: int, stride: int) -> None:
    extent = (20 + 2 * 2 - taps) // stride + 1
    left = 20 + 4 - taps - stride * (extent - 1)
    attrs = {"strides": (stride,) * 2, "pads": (2,) * 4, "dilations": (1, 1), "group": 12}
    x, w, g = some(5, 12, 20, 20), some(24, 1, taps, taps), some(5, 24, extent, extent)
    in_images: Step = ("conv_transpose", (0, 1), {**attrs, "output_padding": (left, left)})
    check([g, w], [in_images], lambda call_with: choose(call_with, 0, 1, 5))
    for splits in (1, 8):
        in_weights: Step = ("conv_grad_weight", (0, 1), {**attrs, "kernel": (taps, taps)})
        check([x, g], [in_weights], lambda call_with, splits=splits: choose(call_with, 0, splits, 5))


def test_sums_of_products(kernels: None) -> None:
    attrs = {"transpose_a": True, "transpose_b": False}
    depths = (224, 224, 32)
    factors = [v for depth in depths for v in (some(depth, 70), some(depth, 130))]
    steps: list[Step] = [("matmul", (0, 1), attrs)]
    for k in (1, 2):
        steps += [("matmul", (2 * k, 2 * k + 1), attrs), ("add", (4 + 2 * k, 5 + 2 * k), {})]
    check(factors, steps, lambda _: new_workspace())
