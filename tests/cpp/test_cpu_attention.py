# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels for attention, forward and backward, against the ops' numpy reference in f64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array
from training_cases import CASES, Training, hidden_rows, no_key_beyond

from memc import native
from memc.ir.core import Op
from memc.ir.evaluate import run_op
from memc.passes.kernels.select_kernels import library_kernel


@pytest.fixture(autouse=True)
def loaded() -> None:
    native.load()


def call(op: Op, given: list[Array], results: list[Array]) -> None:
    kernel = library_kernel(op, "llvm")
    assert kernel is not None and kernel.workspace is None
    tensors = [tvm_ffi.from_dlpack(a) for a in (*given, *results)]
    tvm_ffi.get_global_func(kernel.symbol)(*tensors, *kernel.scalars(op))


def empty(op: Op) -> list[Array]:
    return [np.full(v.type.shape, np.nan, np.float32) for v in op.results]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("place", ["apart", "over q", "over g"])
def test_forward_and_backward(case: Training, place: str) -> None:
    """Within 1e-5; also where the first result takes the place of the queries, or of the gradient that arrives."""
    *forward, g = case.operands
    (result, log_sum), gradients = case.expected()
    op = case.op("attention_training", forward)
    if place == "apart" or (place == "over q" and g.shape == case.q):
        given, found = [a.copy() for a in forward], empty(op)
        found[0] = given[0] if place == "over q" else found[0]
        call(op, given, found)
        np.testing.assert_allclose(found[0], result, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[1], log_sum, rtol=1e-5, atol=1e-5)
    given = [*(a.copy() for a in forward), log_sum.astype(np.float32)]
    given += [(g * result).sum(axis=-1).astype(np.float32), g.copy()]
    op = case.op("attention_grad", given)
    found = empty(op)
    if place != "apart":
        if g.shape != case.q:
            pytest.skip("another shape")
        found[0] = given[0] if place == "over q" else given[-1]
    call(op, given, found)
    for name, value, wanted in zip("qkv", found, gradients):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=2e-5, err_msg=name)


def test_the_same_bits_with_any_number_of_threads(threads: int) -> None:
    case = CASES[4]
    *forward, g = case.operands
    op = case.op("attention_training", forward)
    rows = np.ones(case.q[:-1], np.float32)
    given = [*forward, rows, rows, g]
    back = case.op("attention_grad", given)
    use = tvm_ffi.get_global_func("memc.cpu.use_threads")
    all_found = []
    for count in (1, threads):
        use(count)
        found, gradients = empty(op), empty(back)
        call(op, forward, found)
        call(back, given, gradients)
        all_found.append([a.tobytes() for a in (*found, *gradients)])
    assert all_found[0] == all_found[1]


def test_rows_that_see_no_key_and_other_infinities() -> None:
    """As softmax: a row of only -inf gives nan, +inf and nan spread in their row, and -inf elsewhere counts nothing."""
    case = hidden_rows()
    (result, log_sum), gradients = case.expected()
    *forward, g = case.operands
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    assert np.isnan(found[0][:, [0, 2, 3]]).all() and np.isfinite(np.delete(found[0], [0, 2, 3], 1)).all()
    np.testing.assert_allclose(found[0], result, rtol=1e-5, atol=1e-5)
    finite = np.isfinite(log_sum)
    np.testing.assert_allclose(found[1][finite], log_sum[finite], rtol=1e-5, atol=1e-5)
    assert not np.isfinite(found[1][~finite]).any()
    given = [*forward, log_sum.astype(np.float32), (g * result).sum(axis=-1).astype(np.float32), g]
    back = case.op("attention_grad", given)
    found = empty(back)
    call(back, given, found)
    for value, wanted in zip(found, gradients):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=2e-5)


def test_keys_beyond_the_diagonal_of_a_row_that_sees_none() -> None:
    """A row that sees no key makes the gradients of all keys of its head nan, tiles beyond the diagonal too."""
    case = no_key_beyond()
    (result, log_sum), gradients = case.expected()
    *forward, g = case.operands
    given = [*forward, log_sum.astype(np.float32), (g * result).sum(axis=-1).astype(np.float32), g]
    op = case.op("attention_grad", given)
    found = empty(op)
    call(op, given, found)
    for value, wanted in zip(found, gradients):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=2e-5)
    assert np.isnan(found[1][0]).all() and np.isfinite(found[1][1]).all()


def test_large_scores_do_not_overflow() -> None:
    case = Training((3, 33, 16), (3, 65, 16), 16, 1)
    *forward, _ = case.operands
    forward[0] *= 1000
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    wide = [a.astype(np.float64) for a in forward]
    wanted, log_sum = run_op(case.op("attention_training", wide), wide)
    np.testing.assert_allclose(found[0], wanted, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(found[1], log_sum, rtol=1e-6)


def test_what_the_kernels_do_not_take() -> None:
    wide = Training((1, 4, 257), (1, 4, 257), 4, 1)
    *forward, _ = wide.operands
    assert library_kernel(wide.op("attention_training", forward), "llvm") is None
    halves = [a.astype(np.float16) for a in CASES[0].operands[:3]]
    assert library_kernel(CASES[0].op("attention_training", halves), "llvm") is None
    results = [np.zeros((1, 4, 4), np.float32), np.zeros((1, 4), np.float32)]
    tensors = [tvm_ffi.from_dlpack(a) for a in (*forward, *results)]
    with pytest.raises(ValueError, match="more than 256 columns"):
        tvm_ffi.get_global_func("memc.cpu.attention")(*tensors, 3, 1, 1.0, 0, 0)
