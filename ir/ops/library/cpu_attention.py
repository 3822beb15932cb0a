# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels for attention (`cpp/kernels/attention.h`), which store no scores."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import Op
from ...types import DType
from ..shared.attention_parts import (
    cap_of,
    diagonal_of,
    dropped_words,
    is_zero_blind,
    parts_of,
    ratio_of,
    window_of,
)
from ..shared.casts import HALF
from ..shared.op_def import LibraryKernel

MOST_HEAD_COLUMNS = 256
"""The most columns of a head that the kernels have room for."""

_BACKWARD = 3
"""Operands of gradients behind those of attention: log_sum, share and g."""


def forward_operands(op: Op) -> int:
    """How many operands of an attention op are those of attention, and not what its gradients take besides."""
    return len(op.operands) - (_BACKWARD if op.name in ("attention_grad", "attention_mask_grad") else 0)


def _supports(op: Op) -> bool:
    """Of f32 or halves, with numbers of rows of f32, and a mask of bool, of the same type or of f32; a dropout drops something."""
    types = [v.type for v in (*op.operands, *op.results)]
    q, v, forward = types[0], types[2], forward_operands(op)
    parts = parts_of(types[:forward])
    mask, is_dropout = parts.mask, parts.seed is not None
    rows = types[forward : forward + 2] if forward < len(op.operands) else types[len(op.operands) + 1 :]
    return (
        q.dtype in (DType.F32, *HALF)
        and max(q.shape[-1], v.shape[-1]) <= MOST_HEAD_COLUMNS
        and all(t.dtype is DType.F32 for t in rows)
        and (mask is None or mask.dtype in (DType.BOOL, DType.F32, q.dtype))
        and is_dropout == (dropped_words(op.attrs) > 0)
        and all(t.elements > 0 for t in types)
    )


def _scalars(op: Op) -> Sequence[int | float]:
    """Operand count, whether there is a mask, axis, scale, whether there is a diagonal, that, window, cap, whether rows that see no
    key are 0, and of dropout the words that drop, what is left is times by, and the stream."""
    attrs = op.attrs
    axis, scale, diagonal, stream = attrs["axis"], attrs["scale"], diagonal_of(attrs), attrs.get("stream", 0)
    assert isinstance(axis, int) and isinstance(scale, (int, float)) and isinstance(stream, int)
    parts, ratio = parts_of(op.operands[: forward_operands(op)]), ratio_of(attrs)
    return (
        *(len(op.operands), int(parts.mask is not None), axis, float(scale)),
        *(int(diagonal is not None), diagonal or 0, window_of(attrs) or 0, cap_of(attrs) or 0.0),
        *(int(is_zero_blind(attrs)), dropped_words(attrs), 1 / (1 - ratio), stream),
    )


def _kernel(symbol: str) -> LibraryKernel:
    return LibraryKernel(target="llvm", symbol=symbol, supports=_supports, scalars=_scalars, workspace=None, whole=True)


ATTENTION_CPU = _kernel("memc.cpu.attention")
"""Attention of f32 or halves with heads of at most 256 columns, and the log-sum-exp of its rows if there is a result for it."""

ATTENTION_GRAD_CPU = _kernel("memc.cpu.attention_grad")
"""Its gradients in q, k and v: one thread for each head of k."""

ATTENTION_MASK_GRAD_CPU = _kernel("memc.cpu.attention_mask_grad")
"""That in its mask: one thread for each tile of the mask."""
