# SPDX-License-Identifier: Apache-2.0
"""memc's CUDA kernels for attention against the op's numpy reference in f64: their source, on fibers of the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from attention_cases import CASES, Case
from library_groups import Array

from memc.passes.kernels.select_kernels import library_kernel


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


@pytest.mark.parametrize(
    ("images", "alone"),
    [(("cubin",), True), (("cubin:attention", "cubin:attention", "cubin:split"), False)],
    ids=["without clusters", "images of two versions"],
)
def test_other_devices_and_images(fake: Path, images: tuple[str, ...], alone: bool) -> None:
    """Without clusters, blocks are alone: none may be launched together. Of several images, each may have some kernels."""
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np, tvm_ffi
from memc import native
from attention_cases import CASES
from split_calls import assert_near, call, new_workspace
from library_groups import make_op
from memc.passes.kernels.select_kernels import library_kernel
native.load()
tvm_ffi.get_global_func("memc.cuda.set_libraries")(*[{str(fake)!r}] * 3)
for image in {images!r}:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, image.encode())
case = CASES[0]
result = np.zeros(case.op.result.type.shape, np.float32)
tensors = [tvm_ffi.from_dlpack(a) for a in (*case.operands, result)]
tvm_ffi.get_global_func("memc.cuda.attention")(*tensors, *library_kernel(case.op, "cuda").scalars(case.op))
case.check(result)
a, b = np.ones((8, 512), np.float32), np.ones((512, 8), np.float32)
product = make_op([a, b], [("matmul", (0, 1), dict(transpose_a=False, transpose_b=False))])
result = np.zeros((8, 8), np.float32)
call(product, [a, b], result, np.zeros(new_workspace(), np.uint8))
assert_near(result, a @ b)
print("same")
"""
    given = {**os.environ, "FAKE_CUDA_FAILS": "cublasLtMatmul", **({"FAKE_CUDA_ALONE": "1"} if alone else {})}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=given)
    assert done.stdout == "same\n", done.stderr
