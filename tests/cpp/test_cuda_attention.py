# SPDX-License-Identifier: Apache-2.0
"""memc's CUDA kernels for attention against the op's numpy reference in f64: their source, on fibers of the host."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from attention_cases import CASES, Case
from library_groups import Array

from memc.passes.select_kernels import library_kernel


@pytest.fixture
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


def run(case: Case, in_place: bool = False) -> Array:
    """What the kernel makes, in the place of its queries or elsewhere."""
    op = case.op
    kernel = library_kernel(op, "cuda")
    assert kernel is not None and kernel.workspace is None
    given = [a.copy() for a in case.operands]
    result = given[0] if in_place else np.full(op.result.type.shape, -7, np.float32)
    tensors = [tvm_ffi.from_dlpack(a) for a in (*given, result)]
    tvm_ffi.get_global_func(kernel.symbol)(*tensors, *kernel.scalars(op))
    return result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(own: None, case: Case) -> None:
    case.check(run(case))
    if case.op.operands[0].type == case.op.result.type:
        case.check(run(case, in_place=True))


def test_results_are_the_same_bits_every_time(own: None) -> None:
    np.testing.assert_array_equal(run(CASES[0]), run(CASES[0]))


def test_rows_without_keys_and_other_infinities(own: None) -> None:
    """As softmax: a row of only -inf gives nan, +inf and nan spread in their row, and -inf elsewhere counts nothing."""
    mask = np.zeros((40, 70), np.float32)
    mask[0] = -np.inf
    mask[1, :64] = -np.inf
    mask[2, 3] = np.inf
    mask[3, 69] = np.nan
    case = Case((2, 40, 8), (2, 70, 8), 8, 1, 0.5, mask)
    result = run(case)
    assert np.isnan(result[:, [0, 2, 3]]).all() and np.isfinite(np.delete(result, [0, 2, 3], 1)).all()
    case.check(result)


def test_large_scores_do_not_overflow(own: None) -> None:
    case = Case((3, 33, 16), (3, 65, 16), 16, 1, 300.0)
    case.check(run(case), 2e-4)  # Scores of thousands, whose rounding in f32 the exponentials enlarge.


def test_too_wide_heads_are_refused(own: None) -> None:
    wide = Case((1, 4, 132), (1, 4, 132), 4, 1, 1.0)
    assert library_kernel(wide.op, "cuda") is None
    tensors = [tvm_ffi.from_dlpack(a) for a in (*wide.operands, np.zeros((1, 4, 4), np.float32))]
    with pytest.raises(ValueError, match="heads of this size"):
        tvm_ffi.get_global_func("memc.cuda.attention")(*tensors, 1, 1.0)
