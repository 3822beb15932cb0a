# SPDX-License-Identifier: Apache-2.0
"""The CUDA kernels for attention, which are memc's own (`attention.cu`, `attention_training.cuh`)."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import Op
from ...types import DType
from ..shared.attention_parts import FORM, diagonal_of, heads_of
from ..shared.axes import axis_of
from ..shared.casts import HALF
from ..shared.op_def import LibraryKernel
from .cpu_attention import MOST_HEAD_COLUMNS
from .cuda_call import MAX_ELEMENTS, tf32


def _is_plain(op: Op) -> bool:
    """Whether an op says nothing that these kernels do not do."""
    return not set(FORM) & set(op.attrs) - {"diagonal"}


MOST_COLUMNS = 128
"""The most columns of a head that the kernels have room for."""


def _attention_supports(op: Op) -> bool:
    types = [v.type for v in (*op.operands, *op.results)]
    q, k, v = types[:3]
    axis = axis_of(op.attrs, q)
    return (
        2 <= q.rank <= 4
        and _is_plain(op)
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


def _training_supports(op: Op) -> bool:
    """Of f32 or halves, with numbers of rows of f32, and a mask of bool, of the same type or of f32."""
    backward = op.name == "attention_grad"
    forward = len(op.operands) - (3 if backward else 0)
    types = [v.type for v in (*op.operands, *op.results)]
    q = types[0]
    numbers = [types[forward], types[forward + 1]] if backward else [types[-1]]
    mask = types[3:forward]
    return (
        q.dtype in (DType.F32, *HALF)
        and _is_plain(op)
        and 2 <= q.rank <= 4
        and max(q.shape[-1], types[2].shape[-1]) <= MOST_HEAD_COLUMNS
        and all(t.dtype is DType.F32 for t in numbers)
        and all(t.dtype in (DType.BOOL, q.dtype, DType.F32) for t in mask)
        and all(0 < t.elements <= MAX_ELEMENTS for t in types)
    )


def _training_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, axis, scale, whether there is a diagonal, that, and whether factors are rounded to TF32."""
    diagonal = diagonal_of(op.attrs)
    given = int(diagonal is not None), diagonal or 0
    return (len(op.operands), *_attention_scalars(op), *given, tf32(op))


def _training_workspace(op: Op) -> tuple[int, int]:
    """What cuDNN's fused kernel counts tiles in (measured: as many bytes for every shape), where it may be taken: as `MayFuse` of
    `cpp/cuda/cuda_fused_attention.cc` has it."""
    q, k, v = (value.type for value in op.operands[:3])
    diagonal = diagonal_of(op.attrs)
    keys = k.shape[axis_of(op.attrs, q)]
    fused = (
        q.dtype in HALF
        and len(op.operands) == 3
        and (diagonal is None or diagonal == 0 or diagonal >= keys - 1)
        and all(columns <= FUSED_COLUMNS and columns % 8 == 0 for columns in (q.shape[-1], v.shape[-1]))
    )
    return (COUNTERS, COUNTERS) if fused else (0, 0)


COUNTERS = 256
"""Bytes."""

FUSED_COLUMNS = 128

ATTENTION_TRAINING_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.attention_training",
    supports=_training_supports,
    scalars=_training_scalars,
    workspace=_training_workspace,
    whole=True,
)
"""Attention of f32 or halves with heads of at most 256 columns, and the log-sum-exp of its rows."""

ATTENTION_GRAD_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.attention_grad",
    supports=_training_supports,
    scalars=_training_scalars,
    workspace=None,
    whole=True,
)
"""Its gradients in q, k and v, by two kernels one after the other."""


def training_type(op: Op) -> str:
    """The type in the names of the kernels that such a call takes."""
    return "tf32" if tf32(op) else op.operands[0].type.dtype.value


def training_width(op: Op) -> int:
    """The columns that these kernels have room for."""
    columns = max(op.operands[n].type.shape[-1] for n in (0, 2))
    return next(width for width in TRAINING_WIDTHS if columns <= width)


TRAINING_WIDTHS = (64, 96, 128, MOST_HEAD_COLUMNS)
"""As `cpp/cuda/cuda_attention_training.cc` has them."""
