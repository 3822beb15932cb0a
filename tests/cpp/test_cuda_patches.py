# SPDX-License-Identifier: Apache-2.0
"""Convolutions and their gradients in TF32, and over volumes in f32, against the ops' numpy references: the kernels' source,
compiled for the host, on fibers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op
from split_calls import call, check_way, choose, launches_of, new_workspace

from memc.ir.core import Op
from memc.ir.evaluate import run_op

RNG = np.random.default_rng(9)
SPLITS = (1, 2, 4, 8)
ROUNDED = range(6)
"""The tiles of factors that are rounded to TF32; `EXACT`: of others."""

EXACT = range(6, 9)


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


@pytest.fixture
def own(kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_SHARED", str(227 << 10))
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


CONVOLUTIONS = [
    # x, w, strides, pads, dilations
    ((2, 5, 13, 11), (37, 5, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((2, 4, 4, 7, 6), (35, 4, 3, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1), (1, 1, 1)),
    ((1, 3, 5, 9, 8), (66, 3, 3, 5, 4), (1, 2, 2), (1, 2, 1, 1, 2, 1), (1, 1, 2)),
    ((2, 3, 14, 14), (33, 3, 7, 7), (2, 2), (3, 3, 2, 2), (1, 1)),
    ((3, 40, 7, 5), (65, 40, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((2, 17, 6, 6), (12, 17, 1, 7), (1, 1), (0, 3, 0, 3), (1, 1)),
]


VOLUMES = CONVOLUTIONS[1:3]


def attributes(case: tuple[Any, ...]) -> dict[str, Any]:
    return {"strides": case[2], "pads": case[3], "dilations": case[4], "group": 1}


def check(fake: Path, arrays: list[Array], *steps: Step, tile: int, splits: int, in_place: int | None = None) -> None:
    check_way(fake, arrays, *steps, way=(tile, splits), kind=4, tf32=tile in ROUNDED, in_place=in_place)


@pytest.mark.parametrize(
    ("tile", "case"),
    [*((tile, case) for tile in ROUNDED for case in CONVOLUTIONS[:2]), *((tile, VOLUMES[0]) for tile in EXACT)],
)
def test_convolutions(own: None, fake: Path, case: tuple[Any, ...], tile: int) -> None:
    x, w = some(*case[0]), some(*case[1])
    check(fake, [x, w], ("conv", (0, 1), attributes(case)), tile=tile, splits=SPLITS[tile % 4])


@pytest.mark.parametrize(
    ("tile", "case"), [*((4, case) for case in CONVOLUTIONS), *((tile, VOLUMES[1]) for tile in (7, 8))]
)
def test_what_follows(own: None, fake: Path, case: tuple[Any, ...], tile: int) -> None:
    x, w, bias = some(*case[0]), some(*case[1]), some(case[1][0])
    residual = some(*make_op([x, w], [("conv", (0, 1), attributes(case))]).result.type.shape)
    steps: list[Step] = [("conv", (0, 1, 2), attributes(case)), ("add", (3, 4), {}), ("relu", (5,), {})]
    check(fake, [x, w, bias, residual], *steps, tile=tile, splits=2)
    check(fake, [x, w, bias, residual], *steps, tile=tile, splits=4, in_place=3)


GRADIENTS = [
    # x, w, pads, dilations
    ((2, 5, 9, 10), (37, 5, 3, 3), (1, 1), (1, 1)),
    ((2, 35, 3, 6, 5), (9, 35, 3, 3, 3), (1, 1, 1), (1, 1, 1)),
    ((1, 6, 8, 7), (7, 6, 1, 7), (0, 2), (1, 1)),
    ((1, 6, 8, 12), (7, 6, 2, 3), (0, 3), (1, 2)),
]


@pytest.mark.parametrize(
    ("tile", "case"), [*zip((0, 3, 4, 5), GRADIENTS), *((tile, GRADIENTS[1]) for tile in (1, 2, *EXACT))]
)
def test_gradients_in_images(own: None, fake: Path, case: tuple[Any, ...], tile: int) -> None:
    shape, kernel, pads, dilations = case
    ones, none = (1,) * len(pads), (0,) * len(pads)
    attrs = {"strides": ones, "pads": pads + pads, "dilations": dilations, "group": 1}
    result = make_op([some(*shape), some(*kernel)], [("conv", (0, 1), attrs)]).result.type.shape
    g, w, bias = some(*result), some(*kernel), some(shape[1])
    step: Step = ("conv_transpose", (0, 1, 2), {**attrs, "output_padding": none})
    check(fake, [g, w, bias], step, tile=tile, splits=SPLITS[tile % 4])


@pytest.mark.parametrize(
    ("tile", "case"), [*zip(ROUNDED, CONVOLUTIONS), *((tile, VOLUMES[tile % 2]) for tile in EXACT)]
)
def test_gradients_in_weights(own: None, fake: Path, case: tuple[Any, ...], tile: int) -> None:
    x, w = some(*case[0]), some(*case[1])
    g = some(*make_op([x, w], [("conv", (0, 1), attributes(case))]).result.type.shape)
    step: Step = ("conv_grad_weight", (0, 1), {**attributes(case), "kernel": case[1][2:]})
    check(fake, [x, g], step, tile=tile, splits=SPLITS[(tile + 1) % 4])


FEW_SUMS = [
    # x, w, strides, pads, dilations
    ((2, 3, 40, 37), (30, 3, 3, 3), (2, 2), (1, 1, 0, 1), (1, 1)),
    ((3, 20, 31, 30), (35, 20, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((1, 4, 9, 20, 18), (7, 4, 3, 3, 2), (1, 2, 1), (1, 1, 1, 1, 1, 1), (1, 1, 2)),
    ((1, 40, 52, 30), (1, 40, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
]


@pytest.mark.parametrize("tf32", (False, True))
@pytest.mark.parametrize(("tile", "splits", "tables"), [(8, 8, 3), (9, 1, 9), (10, 4, 1), (11, 8, 2), (9, 8, 2)])
@pytest.mark.parametrize("case", FEW_SUMS)
def test_few_sums(
    own: None, fake: Path, case: tuple[Any, ...], tile: int, splits: int, tables: int, tf32: bool
) -> None:
    """Gradients in weights of many places, added up in tables; in f32 also where TF32 is allowed."""
    x, w = some(*case[0]), some(*case[1])
    g = some(*make_op([x, w], [("conv", (0, 1), attributes(case))]).result.type.shape)
    check_way(
        fake,
        [x, g],
        ("conv_grad_weight", (0, 1), {**attributes(case), "kernel": case[1][2:]}),
        way=(tile, splits),
        kind=4,
        tf32=tf32,
        rounds=False,
        tables=tables,
        least=4 * tables * w.size,
        launches=1 if tables == 1 else 2,
    )


@pytest.mark.parametrize("tile", (*ROUNDED, *EXACT))
def test_copies_may_arrive_at_once(own: None, fake: Path, monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    """And not where they are still in the way."""
    monkeypatch.setenv("FAKE_CUDA_EAGER", "1")
    case = ((1, 10, 3, 6, 9), (40, 10, 3, 3, 3), (1,) * 3, (1,) * 6, (1,) * 3)
    x, w = some(*case[0]), some(*case[1])
    check(fake, [x, w], ("conv", (0, 1), attributes(case)), tile=tile, splits=1)


def test_infinities_and_nan_pass(own: None) -> None:
    x, w = some(1, 4, 4, 4), some(8, 4, 1, 1)
    x[0, 1, 0, 0], x[0, 2, 1, 1] = np.nan, np.inf
    x.view(np.uint32)[0, 3, 2, 2] = 0x7FFFFFFF  # All bits of a nan.
    op = rounding([x, w], ("conv", (0, 1), attributes((0, 0, (1, 1), (0,) * 4, (1, 1)))))
    result = np.zeros((1, 8, 4, 4), np.float32)
    workspace = choose(lambda n: call(op, [x, w], result, np.zeros(n, np.uint8)), 4, 1, 4)
    call(op, [x, w], result, np.zeros(workspace, np.uint8))
    assert np.isnan(result[0, :, 0, 0]).all() and np.isnan(result[0, :, 2, 2]).all()
    assert np.isinf(result[0, :, 1, 1]).all()
    assert np.isfinite(result).sum() == 8 * 13


def rounding(arrays: list[Array], *steps: Step) -> Op:
    """An op whose factors are rounded to TF32."""
    op = make_op(arrays, steps)
    op.plan = replace(op.plan, precision="tf32")
    return op


def test_only_what_they_can_do(own: None, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library fails, one is taken in TF32, and over volumes in f32; none for planes in f32 or for groups."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionForward")
    measure = tvm_ffi.get_global_func("memc.cuda.set_measure")

    def taken(x: Array, w: Array, tf32: bool, group: int = 1) -> bool:
        ones = (1,) * (x.ndim - 2)
        step: Step = ("conv", (0, 1), {"strides": ones, "pads": ones * 2, "dilations": ones, "group": group})
        op = rounding([x, w], step) if tf32 else make_op([x, w], [step])
        result, before = np.zeros(op.result.type.shape, np.float32), launches_of(fake).value
        measure(False)  # The first way that can be.
        try:
            call(op, [x, w], result, np.zeros(new_workspace(), np.uint8))
        except ValueError as error:
            assert "no algorithm" in str(error)
        finally:
            measure(True)
        return launches_of(fake).value > before and bool(np.abs(result).max() > 1)

    volume, w, plane = some(1, 4, 1, 3, 3), some(6, 4, 3, 3, 3), some(1, 4, 3, 3)
    assert taken(volume, w, True) and taken(volume, w, False)
    assert not taken(volume, some(6, 2, 3, 3, 3), True, 2) and not taken(volume, some(6, 2, 3, 3, 3), False, 2)
    assert taken(plane, some(6, 4, 5, 5), True)
    monkeypatch.setenv("FAKE_CUDA_ALONE", "1")
    assert taken(plane, some(6, 4, 5, 4), True)


@pytest.mark.parametrize("tf32", (False, True))
def test_few_sums_are_among_the_ways(own: None, fake: Path, monkeypatch: pytest.MonkeyPatch, tf32: bool) -> None:
    """Where the library fails one is taken that has a workspace for its tables, but none of few terms."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionBackwardFilter")
    measure = tvm_ffi.get_global_func("memc.cuda.set_measure")

    def largest(size: int) -> float:
        x, g = some(2, 3, size, size), some(2, 5, size, size)
        step: Step = ("conv_grad_weight", (0, 1), {**attributes((0, 0, (1, 1), (1,) * 4, (1, 1))), "kernel": (3, 3)})
        op = rounding([x, g], step) if tf32 else make_op([x, g], [step])
        result = np.zeros(op.result.type.shape, np.float32)
        measure(False)
        try:
            call(op, [x, g], result, np.zeros(1 << 16, np.uint8))
        finally:
            measure(True)
        return float(np.abs(result - run_op(op, [x, g])[0]).max())

    assert largest(40) < 1e-3
    if tf32:
        return  # Tiles that round have no least number of terms.
    with pytest.raises(ValueError, match="no algorithm"):
        largest(9)
