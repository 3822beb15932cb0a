# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels for attention in training (`cpp/kernels/attention.h`), which store no scores."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import Op
from ...types import DType
from ..shared.attention_parts import diagonal_of
from ..shared.op_def import LibraryKernel

MOST_HEAD_COLUMNS = 256
"""The most columns of a head that the kernels have room for."""


def _supports(op: Op) -> bool:
    types = [v.type for v in (*op.operands, *op.results)]
    with_mask = len(op.operands) in (4, 7)
    floats = [t for n, t in enumerate(types) if not (with_mask and n == 3 and t.dtype is DType.BOOL)]
    return (
        max(types[0].shape[-1], types[2].shape[-1]) <= MOST_HEAD_COLUMNS
        and all(t.dtype is DType.F32 for t in floats)
        and all(t.elements > 0 for t in types)
    )


def _scalars(op: Op) -> Sequence[int | float]:
    """Operand count, axis, scale, whether there is a diagonal, and that."""
    axis, scale, diagonal = op.attrs["axis"], op.attrs["scale"], diagonal_of(op.attrs)
    assert isinstance(axis, int) and isinstance(scale, (int, float))
    return (len(op.operands), axis, float(scale), int(diagonal is not None), diagonal or 0)


ATTENTION_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.attention",
    supports=_supports,
    scalars=_scalars,
    workspace=None,
    whole=True,
)
"""Attention of f32 with heads of at most 256 columns, and the log-sum-exp of its rows."""

ATTENTION_GRAD_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.attention_grad",
    supports=_supports,
    scalars=_scalars,
    workspace=None,
    whole=True,
)
"""Its gradients in q, k and v: one thread for each head of k."""
