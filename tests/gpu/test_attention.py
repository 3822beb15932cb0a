# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: attention by memc's own kernels, against numpy. Skips itself elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import CASES, Case, causal

from memc.passes.kernels.select_kernels import library_kernel

pytestmark = pytest.mark.gpu

LARGE = [
    Case((1, 128, 12, 64), (1, 128, 12, 64), 64, 1, 0.125),
    Case((32, 128, 12, 64), (32, 128, 12, 64), 64, 1, 0.125, (32, 1, 1, 128)),
    Case((197, 2, 12, 64), (197, 2, 12, 64), 64, 0, 0.125),
    Case((2, 8, 500, 96), (2, 8, 700, 96), 128, 2, 0.1, causal(500, 700)),
]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("case", [*CASES, *LARGE], ids=str)
def test_attention(kernels: None, case: Case, in_place: bool) -> None:
    import tvm
    import tvm_ffi

    op, device = case.op, tvm.cuda(0)
    if in_place and op.operands[0].type != op.result.type:
        pytest.skip("the result has another shape than the queries")
    kernel = library_kernel(op, "cuda")
    assert kernel is not None
    given = [tvm.runtime.tensor(a, device) for a in case.operands]
    result = given[0] if in_place else tvm.runtime.tensor(np.full(op.result.type.shape, np.nan, np.float32), device)
    tensors = [tvm_ffi.from_dlpack(t) for t in (*given, result)]
    tvm_ffi.get_global_func(kernel.symbol)(*tensors, *kernel.scalars(op))
    case.check(result.numpy())
