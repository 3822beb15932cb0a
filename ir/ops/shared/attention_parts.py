# SPDX-License-Identifier: Apache-2.0
"""What the attention ops share: which operands fit each other, and the scores, in numpy and as ops.

Operands q [..., M, D], k [..., N, D], v [..., N, E] and maybe a mask. Attribute `axis` says where M and N are; the other axes but
the last are heads. q may have a multiple of k's heads along an axis: head h of q then reads head h // (q's heads / k's heads).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...build import IRBuilder
from ...core import Array, Op, Value
from ...errors import OpError
from ...types import DType, TensorType
from .axes import axis_of, number_of
from .op_def import Attrs
from .window import accumulator


def heads_first(rank: int, axis: int) -> tuple[int, ...]:
    """What brings the positions at `axis` behind the heads."""
    return (*(d for d in range(rank - 1) if d != axis), axis, rank - 1)


def heads_of(x: TensorType, axis: int) -> tuple[int, ...]:
    """The extents of the axes that are neither positions nor columns."""
    return tuple(n for d, n in enumerate(x.shape[:-1]) if d != axis)


def scores_of(q: TensorType, k: TensorType, axis: int) -> tuple[int, ...]:
    """The scores' shape: [heads..., queries, keys]."""
    return (*heads_of(q, axis), q.shape[axis], k.shape[axis])


def diagonal_of(attrs: Attrs) -> int | None:
    """Attribute `diagonal`; None if it is missing. Raises OpError for what is no integer."""
    diagonal = attrs.get("diagonal")
    if diagonal is not None and (isinstance(diagonal, bool) or not isinstance(diagonal, int)):
        raise OpError(f"expected attribute `diagonal` to be an integer, got {diagonal}")
    return diagonal


def require_fitting(operands: Sequence[TensorType], attrs: Attrs) -> None:
    """Raise OpError unless q, k, v and maybe a mask fit each other and the attributes."""
    if len(operands) not in (3, 4):
        raise OpError(f"expected the operands q, k, v and maybe a mask, got {len(operands)}")
    q, k, v = operands[:3]
    axis = axis_of(attrs, q)
    number_of(attrs, "scale")
    diagonal_of(attrs)
    if not q.dtype.is_float or any(t.dtype is not q.dtype for t in (k, v)):
        raise OpError(f"expected floats of one type, got {', '.join(map(str, operands))}")
    if q.rank < 2 or axis == q.rank - 1:
        raise OpError(f"expected an `axis` before the last one of {q}, got {axis}")
    if k.rank != q.rank or k.shape[-1] != q.shape[-1] or not _divide(heads_of(k, axis), heads_of(q, axis)):
        raise OpError(f"expected keys of {q} with any extent of axis {axis}, and as many heads or a divisor, got {k}")
    if v.rank != q.rank or v.shape[:-1] != k.shape[:-1]:
        raise OpError(f"expected values for the keys {k}, got {v}")
    if len(operands) == 4:
        _require_mask(operands[3], q.with_shape(scores_of(q, k, axis)))


def _divide(fewer: tuple[int, ...], heads: tuple[int, ...]) -> bool:
    return all(n == m or (n > 0 and m % n == 0) for n, m in zip(fewer, heads))


def _require_mask(mask: TensorType, scores: TensorType) -> None:
    if mask.dtype not in (scores.dtype, accumulator(scores.dtype), DType.BOOL):
        raise OpError(f"expected floats of one type, or a mask of bool or f32, got {mask} for the scores {scores}")
    try:
        fits = np.broadcast_shapes(mask.shape, scores.shape) == scores.shape
    except ValueError:
        fits = False
    if not fits:
        raise OpError(f"expected a mask that broadcasts to {scores}, got {mask}")


def repeated_heads(x: Array, heads: Sequence[int]) -> Array:
    """x [fewer heads..., rows, columns] with each head as often as `heads` have it."""
    for d, wanted in enumerate(heads):
        if x.shape[d] != wanted:
            x = np.repeat(x, wanted // x.shape[d], axis=d)
    return x


def summed_heads(x: Array, fewer: Sequence[int]) -> Array:
    """The other way round: the sum over the heads that were repeated of one."""
    for d, wanted in enumerate(fewer):
        if x.shape[d] != wanted:
            x = x.reshape(*x.shape[:d], wanted, -1, *x.shape[d + 1 :]).sum(axis=d + 1)
    return x


def evaluate_scores(q: Array, k: Array, mask: Sequence[Array], attrs: Attrs) -> Array:
    """scale q k^T, masked; q and the repeated k are [heads..., rows, columns]."""
    with np.errstate(invalid="ignore", over="ignore"):
        scores: Array = np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(number_of(attrs, "scale"))
        for m in mask:
            scores = np.where(m, scores, scores.dtype.type(-np.inf)) if m.dtype == bool else scores + m
    diagonal = diagonal_of(attrs)
    if diagonal is None:
        return scores
    rows, columns = scores.shape[-2:]
    seen = np.tri(rows, columns, k=diagonal, dtype=bool)
    return np.where(seen, scores, scores.dtype.type(-np.inf))


def build_heads(b: IRBuilder, x: Value, axis: int, heads: Sequence[int]) -> Value:
    """x as [heads..., positions, columns], each head as often as `heads` have it."""
    perm = heads_first(x.type.rank, axis)
    if perm != tuple(range(x.type.rank)):
        x = b.op("transpose", [x], perm=perm)
    for d, wanted in enumerate(heads):
        shape = x.type.shape
        if shape[d] != wanted:
            x = b.op("reshape", [x], shape=(*shape[: d + 1], 1, *shape[d + 1 :]))
            x = b.op("broadcast", [x], shape=(*shape[: d + 1], wanted // shape[d], *shape[d + 1 :]))
            x = b.op("reshape", [x], shape=(*shape[:d], wanted, *shape[d + 1 :]))
    return x


def build_back(b: IRBuilder, x: Value, axis: int, fewer: Sequence[int]) -> Value:
    """The other way round: the sum over the heads that were repeated of one, and the positions at `axis` again."""
    for d, wanted in enumerate(fewer):
        shape = x.type.shape
        if shape[d] != wanted:
            x = b.op("reshape", [x], shape=(*shape[:d], wanted, shape[d] // wanted, *shape[d + 1 :]))
            x = b.op("reduce_sum", [x], axes=(d + 1,), keepdims=False)
    perm = heads_first(x.type.rank, axis)
    if perm == tuple(range(x.type.rank)):
        return x
    return b.op("transpose", [x], perm=tuple(perm.index(d) for d in range(x.type.rank)))


def build_scores(b: IRBuilder, q: Value, k: Value, mask: Sequence[Value], attrs: Attrs) -> Value:
    """As `evaluate_scores`, written out."""
    scores = b.op("matmul", [q, k], transpose_a=False, transpose_b=True)
    scores = b.op("mul", [scores, b.scalar(number_of(attrs, "scale"), scores.type.dtype)])
    for m in mask:
        scores = _hidden(b, m, scores) if m.type.dtype is DType.BOOL else b.op("add", [scores, m])
    diagonal = diagonal_of(attrs)
    if diagonal is None:
        return scores
    rows, columns = scores.type.shape[-2:]
    row = b.op("iota", [], shape=(rows, 1), axis=0, dtype=DType.I64)
    column = b.op("iota", [], shape=(1, columns), axis=1, dtype=DType.I64)
    last = b.op("add", [row, b.scalar(diagonal, DType.I64)])
    return _hidden(b, b.op("less_equal", [column, last]), scores)


def _hidden(b: IRBuilder, seen: Value, scores: Value) -> Value:
    return b.op("select", [seen, scores, b.scalar(-np.inf, scores.type.dtype)])


def seen_scores(op: Op) -> int:
    """How many scores the softmax of an attention op is of: those beyond its `diagonal` do not count."""
    q, k = (v.type for v in op.operands[:2])
    *heads, rows, columns = scores_of(q, k, axis_of(op.attrs, q))
    diagonal = diagonal_of(op.attrs)
    seen = rows * columns if diagonal is None else sum(min(max(i + diagonal + 1, 0), columns) for i in range(rows))
    for n in heads:
        seen *= n
    return seen
