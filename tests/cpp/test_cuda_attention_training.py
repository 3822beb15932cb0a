# SPDX-License-Identifier: Apache-2.0
"""memc's CUDA kernels for attention in training against the ops' numpy reference in f64: their source, on fibers of the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array
from training_cases import CASES, Training, hidden_rows, no_key_beyond

from memc.ir.core import Op
from memc.ir.types import DType
from memc.passes.kernels.select_kernels import library_kernel

KINDS = {"f32": 1e-5, "tf32": 4e-3, "f16": 4e-3, "bf16": 3e-2}
"""Precisions, and how near to f64 a result of numbers like 1 is."""


@pytest.fixture(autouse=True)
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


def call(op: Op, given: list[Array], results: list[Array]) -> None:
    kernel = library_kernel(op, "cuda")
    assert kernel is not None
    scratch = [np.empty(kernel.workspace(op)[0], np.uint8)] if kernel.workspace is not None else []
    # Those of bf16 come as their bits.
    bits = [
        a.view(np.uint16) if a.dtype == DType.BF16.numpy else a
        for a in (*given, *results, *(a for a in scratch if a.size))
    ]
    tvm_ffi.get_global_func(kernel.symbol)(*map(tvm_ffi.from_dlpack, bits), *kernel.scalars(op))


def empty(op: Op) -> list[Array]:
    return [np.full(v.type.shape, 7, v.type.dtype.numpy) for v in op.results]


def rounded(op: Op, tf32: bool) -> Op:
    op.plan = replace(op.plan, precision="tf32" if tf32 else None)
    return op


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(case: Training, kind: str) -> None:
    check(case, kind, KINDS[kind])


def check(case: Training, kind: str, tolerance: float, place: str = "apart") -> None:
    """Results and gradients are as near as `tolerance` to those of f64, which has the same operands."""
    case = replace(case, dtype=DType.F32 if kind == "tf32" else DType(kind))
    *forward, g = case.operands
    (result, log_sum), gradients = case.expected()
    op = rounded(case.op("attention_training", forward), kind == "tf32")
    given, found = [a.copy() for a in forward], empty(op)
    if place == "over q":
        found[0] = given[0]
    call(op, given, found)
    np.testing.assert_allclose(found[0].astype(np.float64), result, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[1], log_sum, rtol=tolerance, atol=tolerance)
    given = [*(a.copy() for a in forward), log_sum.astype(np.float32)]
    given += [(g.astype(np.float64) * result).sum(axis=-1).astype(np.float32), g.copy()]
    op = rounded(case.op("attention_grad", given), kind == "tf32")
    found = empty(op)
    if place != "apart":
        found[0] = given[0] if place == "over q" else given[-1]
    call(op, given, found)
    for name, value, wanted in zip("qkv", found, gradients):
        # The gradients of one key that all queries see cancel: what is left is the rounding of terms like 10.
        # With one key its weight is 1, and what cancels in the gradients has as many products as there are columns.
        terms = float(case.width) ** 0.5 if case.k[case.axis] == 1 else 2.0
        most = max(terms, np.nanmax(np.abs(wanted), initial=0))
        np.testing.assert_allclose(
            value.astype(np.float64), wanted, rtol=tolerance, atol=2 * most * tolerance, err_msg=name
        )


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("place", ["over q", "over g"])
def test_the_first_result_in_the_place_of_an_operand(kind: str, place: str) -> None:
    for case in CASES:
        if case.q[-1] == case.width:
            check(case, kind, KINDS[kind], place)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_mask_of_f32_for_halves(kind: str) -> None:
    """Numbers that halves do not have: a mask of the lowest number of f32 hides less than -inf."""
    mask = np.full((40, 70), np.finfo(np.float32).min)
    mask[1:, :30] = 0.001
    check(Training((2, 40, 64), (2, 70, 64), 64, 1, mask, wide_mask=True), kind, KINDS[kind])


def test_results_are_the_same_bits_every_time() -> None:
    case = CASES[4]
    *forward, g = case.operands
    rows = np.ones(case.q[:-1], np.float32)
    op, back = case.op("attention_training", forward), case.op("attention_grad", [*forward, rows, rows, g])
    found = []
    for _ in range(2):
        results, gradients = empty(op), empty(back)
        call(op, forward, results)
        call(back, [*forward, rows, rows, g], gradients)
        found.append([a.tobytes() for a in (*results, *gradients)])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("case", [hidden_rows(), no_key_beyond()], ids=["infinities", "beyond the diagonal"])
def test_rows_that_see_no_key_and_other_infinities(case: Training, kind: str) -> None:
    """As softmax: a row of only -inf gives nan and makes the gradients of all keys of its head so, +inf and nan spread in
    their row, and -inf elsewhere counts nothing."""
    case = replace(case, dtype=DType(kind))
    (result, log_sum), gradients = case.expected()
    *forward, g = case.operands
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    np.testing.assert_allclose(found[0].astype(np.float64), result, rtol=KINDS[kind], atol=KINDS[kind])
    finite = np.isfinite(log_sum)
    np.testing.assert_allclose(found[1][finite], log_sum[finite], rtol=KINDS[kind], atol=KINDS[kind])
    assert not np.isfinite(found[1][~finite]).any() and not finite.all()
    given = [*forward, log_sum.astype(np.float32), (g * result).sum(axis=-1).astype(np.float32), g]
    back = case.op("attention_grad", given)
    found = empty(back)
    call(back, given, found)
    for value, wanted in zip(found, gradients):
        np.testing.assert_allclose(value.astype(np.float64), wanted, rtol=KINDS[kind], atol=4 * KINDS[kind])
    assert np.isnan(found[1][0]).all()


def test_large_scores_do_not_overflow() -> None:
    case = Training((3, 33, 16), (3, 65, 16), 16, 1)
    *forward, _ = case.operands
    forward[0] *= 1000
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    wide = [a.astype(np.float64) for a in forward]
    wanted, _ = (a for a in case.of("attention_training", wide))
    np.testing.assert_allclose(found[0], wanted, rtol=2e-4, atol=2e-4)


def test_a_mask_of_the_lowest_numbers_hides_less_than_infinity() -> None:
    """In a row of only the lowest number, all keys count the same, as in the written-out form."""
    mask = np.zeros((40, 70), np.float32)
    mask[0] = np.finfo(np.float32).min
    mask[1, 1:] = np.finfo(np.float32).min
    check(Training((2, 40, 8), (2, 70, 8), 8, 1, mask), "f32", 1e-5)
