# SPDX-License-Identifier: Apache-2.0
"""The CUDA library kernel for matrix products (cuBLASLt), in f32, f16 and bf16.

Products of f32 are computed in f32, or with factors rounded to TF32 where the op's attribute `precision` says `tf32`; products
of halves are added up in f32, and rounded where the group goes on with a cast.

The kernels of CUDA's libraries live in `libmemc_core` (`cpp/exports/cuda_library_kernels.cc`), which registers them when it is loaded
and loads the libraries when they are first called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core import Op
from ..shared.op_def import LibraryKernel
from .cuda_call import call_of, optional, over_residual, tf32, typed

MOST_SPLIT = 1 << 28
"""Bytes beyond which no split of a product is worth its memory."""


def _matmul_supports(op: Op) -> bool:
    call = call_of(op)
    if call is None or not typed(op, call):
        return False
    batch = math.prod(call.result.shape[:-2])
    return all(math.prod(v.type.shape[:-2]) in (1, batch) for v in call.main.operands)


def _matmul_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, bias, relu, transpose_a, transpose_b, residual, scale, tf32, and of several products their number."""
    call = call_of(op)
    assert call is not None
    transposed = (int(bool(call.main.attrs.get(name, False))) for name in ("transpose_a", "transpose_b"))
    last = (optional(call.residual), optional(call.scale), tf32(op), *([call.products] if call.products > 1 else []))
    return (len(op.operands), optional(call.bias), int(call.relu), *transposed, *last)


def _matmul_workspace(op: Op) -> tuple[int, int]:
    """Least and most bytes: of use where a product is split along its depth, which takes a copy of the result for each
    part."""
    return (0, min(MOST_SPLIT, 32 * 4 * op.results[0].type.elements))


MATMUL_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.matmul",
    supports=_matmul_supports,
    scalars=_matmul_scalars,
    workspace=_matmul_workspace,
    groups=True,
    in_place=over_residual,
)
"""Matrix products, one or a batch, times a scalar, then a bias, a residual and ReLU."""
