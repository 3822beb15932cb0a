# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels for attention, forward and backward, against the ops' numpy reference in f64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array
from training_cases import CASES, FORMS, Training, blind_rows, hidden_rows, no_key_beyond

from memc import native
from memc.ir.core import Op
from memc.ir.evaluate import run_op
from memc.ir.types import DType
from memc.passes.kernels.select_kernels import library_kernel


@pytest.fixture(autouse=True)
def loaded() -> None:
    native.load()


def call(op: Op, given: list[Array], results: list[Array]) -> None:
    kernel = library_kernel(op, "llvm")
    assert kernel is not None and kernel.workspace is None
    # Those of bf16 come as their bits.
    bits = [a.view(np.uint16) if a.dtype == DType.BF16.numpy else a for a in (*given, *results)]
    tvm_ffi.get_global_func(kernel.symbol)(*map(tvm_ffi.from_dlpack, bits), *kernel.scalars(op))


def empty(op: Op) -> list[Array]:
    return [np.full(v.type.shape, np.nan, v.type.dtype.numpy) for v in op.results]


@pytest.mark.parametrize("case", [*CASES, *FORMS, blind_rows()], ids=str)
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
    doubles = [a.astype(np.float64) for a in CASES[0].operands[:3]]
    assert library_kernel(CASES[0].op("attention_training", doubles), "llvm") is None
    results = [np.zeros((1, 4, 4), np.float32), np.zeros((1, 4), np.float32)]
    tensors = [tvm_ffi.from_dlpack(a) for a in (*forward, *results)]
    with pytest.raises(ValueError, match="more than 256 columns"):
        tvm_ffi.get_global_func("memc.cpu.attention")(*tensors, 3, 0, 1, 1.0, 0, 0, 0, 0.0, 0, 0, 1.0, 0)


@pytest.mark.parametrize("case", [*CASES, *FORMS, blind_rows()], ids=str)
def test_inference_keeps_no_numbers_of_rows(case: Training) -> None:
    *forward, _ = case.operands
    if "ratio" in case.attrs:
        pytest.skip("dropout is of training")
    (result, _), _ = case.expected()
    op = case.op("attention", forward)
    found = empty(op)
    call(op, forward, found)
    assert len(found) == 1
    np.testing.assert_allclose(found[0], result, rtol=1e-5, atol=1e-5)


def backward(case: Training) -> tuple[list[Array], list[Array]]:
    """What attention_grad is given, in the case's type; and the gradients of f64."""
    *forward, g = case.operands
    (result, log_sum), gradients = case.expected()
    share = (g.astype(np.float64) * result).sum(axis=-1)
    return [*forward, log_sum.astype(np.float32), share.astype(np.float32), g], gradients


WITH_MASK = [case for case in (*CASES, *FORMS) if isinstance(case.mask, tuple)]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize("case", WITH_MASK, ids=str)
def test_the_gradient_in_the_mask(case: Training, dtype: DType) -> None:
    """Summed where the mask is spread out, over rows, columns, heads and the batch."""
    case = replace(case, dtype=dtype)
    given, _ = backward(case)
    wanted = case.of_mask(given)
    op = case.op("attention_mask_grad", given)
    found = empty(op)
    call(op, given, found)
    assert found[0].dtype == dtype.numpy and found[0].shape == wanted.shape
    tolerance = 1e-5 if dtype is DType.F32 else 2e-3
    most = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found[0].astype(np.float64), wanted, rtol=tolerance, atol=tolerance * most)


HALVES = {DType.F16: 2e-3, DType.BF16: 1.6e-2}
"""How near to f64 a result of numbers like 1 is, of operands that are rounded alike."""


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", [*CASES, *FORMS, blind_rows()], ids=str)
@pytest.mark.parametrize("place", ["apart", "over q", "over g"])
def test_halves(case: Training, dtype: DType, place: str) -> None:
    """Sums are f32, and what is stored is rounded once."""
    case, tolerance = replace(case, dtype=dtype), HALVES[dtype]
    if place != "apart" and case.q[-1] != case.width:
        pytest.skip("another shape")
    *forward, _ = case.operands
    (result, log_sum), _ = case.expected()
    op = case.op("attention_training", forward)
    given, found = [a.copy() for a in forward], empty(op)
    if place == "over q":
        found[0] = given[0]
    call(op, given, found)
    np.testing.assert_allclose(found[0].astype(np.float64), result, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[1], log_sum, rtol=1e-5, atol=1e-5)
    given, gradients = backward(case)
    op = case.op("attention_grad", given)
    found = empty(op)
    if place != "apart":
        given = [a.copy() for a in given]
        found[0] = given[0] if place == "over q" else given[-1]
    call(op, given, found)
    for name, value, wanted in zip("qkv", found, gradients):
        most = max(1.0, np.nanmax(np.abs(wanted), initial=0))
        np.testing.assert_allclose(value.astype(np.float64), wanted, rtol=tolerance, atol=1e-4 * most, err_msg=name)


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_of_halves_are_read_and_rounded_to_the_nearest(dtype: DType) -> None:
    """With one key, the result is v: all finite halves come back, subnormal ones too, and f32 is never between."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    finite = every[np.isfinite(every.astype(np.float32))]
    v = np.resize(finite, (256, 1, 256))
    q = np.ones((256, 1, 4), dtype.numpy)
    case = Training(q.shape, q.shape, 256, 1)
    op = case.op("attention", [q, q, v])
    found = empty(op)
    call(op, [q, q, v], found)
    np.testing.assert_array_equal(found[0].astype(np.float32), v.astype(np.float32))
    two = np.concatenate([v, np.roll(v, 1)], axis=1)
    keys = np.ones((256, 2, 4), dtype.numpy)
    op = case.op("attention", [q, keys, two])
    found = empty(op)
    call(op, [q, keys, two], found)
    sums = two.astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = (sums[:, :1] + sums[:, 1:]) / np.float32(2)
    np.testing.assert_array_equal(found[0].astype(np.float32), wanted.astype(dtype.numpy).astype(np.float32))
