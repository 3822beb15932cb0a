# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: attention in training by memc's own kernels, against numpy in f64. Skips itself elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from training_cases import CASES, Training, hidden_rows, no_key_beyond

from memc.ir.core import Op
from memc.ir.types import DType
from memc.passes.kernels.select_kernels import library_kernel

pytestmark = pytest.mark.gpu

TOLERANCES = {"f32": 1e-5, "tf32": 4e-3, "f16": 4e-3, "bf16": 3e-2}
"""How near to f64 a result of numbers like 1 is."""

LARGE = [
    Training((2, 1000, 6, 64), (2, 1000, 2, 64), 64, 1, None, {"diagonal": 0}),
    Training((2, 3, 513, 128), (2, 3, 777, 128), 128, 2, None, {"diagonal": 264}),
    Training((4, 2, 197, 80), (4, 2, 197, 80), 80, 2, (4, 1, 1, 197)),
    Training((64, 3, 49, 32), (64, 3, 49, 32), 32, 2, (1, 3, 49, 49)),
]


def call(arch: str, op: Op, given: list[np.ndarray], first: int | None = None) -> list[np.ndarray]:
    """What a kernel gives; `first`: the operand in whose place the first result goes."""
    import tvm
    import tvm_ffi

    from memc.runtime.codegen.cuda_kernels import own_kernels, training_source_of

    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, own_kernels(arch, (training_source_of(op),)))
    kernel = library_kernel(op, "cuda")
    assert kernel is not None
    results = [np.full(v.type.shape, 7, v.type.dtype.numpy) for v in op.results]
    # Those of bf16 go as their bits.
    bits = [a.view(np.uint16) if a.dtype == DType.BF16.numpy else a for a in (*given, *results)]
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(a), tvm.cuda(0)) for a in bits]
    if first is not None:
        tensors[len(given)] = tensors[first]
    tvm_ffi.get_global_func(kernel.symbol)(*map(tvm_ffi.from_dlpack, tensors), *kernel.scalars(op))
    return [t.numpy().view(r.dtype) for t, r in zip(tensors[len(given) :], results)]


def rounded(op: Op, kind: str) -> Op:
    op.plan = replace(op.plan, precision="tf32" if kind == "tf32" else None)
    return op


@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("case", [*CASES, *LARGE, hidden_rows(), no_key_beyond()], ids=str)
def test_forward_and_backward(arch: str, kernels: None, case: Training, kind: str) -> None:
    """Near to f64 and the same bits twice, also where the first gradient takes the place of q or g."""
    tolerance = TOLERANCES[kind]
    case = replace(case, dtype=DType.F32 if kind == "tf32" else DType(kind))
    *forward, g = case.operands
    (result, log_sum), gradients = case.expected()
    op = rounded(case.op("attention_training", forward), kind)
    found = call(arch, op, forward)
    near(found[0], result, tolerance)
    finite = np.isfinite(log_sum)
    near(found[1][finite], log_sum[finite], tolerance)
    assert not np.isfinite(found[1][~finite]).any()
    share = (g.astype(np.float64) * result).sum(axis=-1).astype(np.float32)
    given = [*forward, log_sum.astype(np.float32), share, g]
    op = rounded(case.op("attention_grad", given), kind)
    found = call(arch, op, given)
    for value, wanted in zip(found, gradients):
        near(value, wanted, 2 * tolerance)
    for first in (0, len(given) - 1) if case.q[-1] == case.width else (None,):
        again = call(arch, op, given, first)
        assert [a.tobytes() for a in again] == [a.tobytes() for a in found]


def near(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    size = max(1.0, float(np.nanmax(np.abs(np.where(np.isfinite(expected), expected, 0)), initial=0)))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * size)
