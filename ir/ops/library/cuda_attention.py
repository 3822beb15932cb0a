# SPDX-License-Identifier: Apache-2.0
"""The CUDA kernel for attention, which is memc's own (`attention.cu`)."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import Op
from ...types import DType
from ..shared.attention_parts import diagonal_of, heads_of
from ..shared.axes import axis_of
from ..shared.op_def import LibraryKernel
from .cuda_call import MAX_ELEMENTS

MOST_COLUMNS = 128
"""The most columns of a head that the kernels have room for."""


def _attention_supports(op: Op) -> bool:
    types = [v.type for v in (*op.operands, *op.results)]
    q, k, v = types[:3]
    axis = axis_of(op.attrs, q)
    return (
        2 <= q.rank <= 4
        and heads_of(q, axis) == heads_of(k, axis)
        and diagonal_of(op.attrs) is None
        and max(q.shape[-1], v.shape[-1]) <= MOST_COLUMNS
        and all(t.dtype is DType.F32 and 0 < t.elements <= MAX_ELEMENTS for t in types)
    )


def _attention_scalars(op: Op) -> Sequence[int | float]:
    """Axis and scale."""
    axis, scale = op.attrs["axis"], op.attrs["scale"]
    assert isinstance(axis, int) and isinstance(scale, (int, float))
    return (axis, float(scale))


ATTENTION_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.attention",
    supports=_attention_supports,
    scalars=_attention_scalars,
    workspace=None,
)
"""Attention of f32 by kernels of memc's own: the scores are never stored."""
