# SPDX-License-Identifier: Apache-2.0
"""What the attention ops share: which operands fit each other, and the scores, in numpy and as ops.

Operands q [..., M, D], k [..., N, D], v [..., N, E], maybe a mask, and maybe the seed of a dropout. Attribute `axis` says where M
and N are; the other axes but the last are heads. q may have a multiple of k's heads along an axis: head h of q then reads head
h // (q's heads / k's heads).

Attributes that may be missing are `FORM`: `diagonal` and `window`, which keys a query sees; `cap`, a bound of the scores; `blind`, what
a row that sees no key is; `ratio` and `stream`, those of a dropout of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeGuard, TypeVar

import numpy as np

from ...build import IRBuilder
from ...core import Array, Attr, Op, Value
from ...errors import OpError
from ...types import DType, TensorType
from .axes import axis_of, number_of
from .common import int_attr
from .op_def import Attrs
from .philox import drawn, require_draw
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
    """Attribute `diagonal`; None if it is missing. Raises OpError for what is no integer, or too far away to add to."""
    diagonal = attrs.get("diagonal")
    if diagonal is not None and not _is_near(diagonal):
        raise OpError(f"expected attribute `diagonal` to be an integer within {FARTHEST} of 0, got {diagonal}")
    return diagonal


FARTHEST = 2**53
"""As far as a diagonal is from 0, and as wide as a window: sums with positions have no overflow in i64."""


def _is_near(number: Attr | None) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and -FARTHEST <= number <= FARTHEST


FORM = ("diagonal", "window", "cap", "blind", "ratio", "stream")
"""Attributes that may be missing."""


def window_of(attrs: Attrs) -> int | None:
    """Attribute `window`, which a `diagonal` ends; None if it is missing. Raises OpError for what is none."""
    window = attrs.get("window")
    if window is None:
        return None
    if not _is_near(window) or window < 1 or diagonal_of(attrs) is None:
        raise OpError(f"expected attribute `window` to be a number of keys, with a `diagonal`, got {window}")
    return window


def cap_of(attrs: Attrs) -> float | None:
    """Attribute `cap`; None if it is missing. Raises OpError for what is no positive number."""
    cap = number_of(attrs, "cap") if "cap" in attrs else None
    if cap is not None and not 0 < cap < np.inf:
        raise OpError(f"expected attribute `cap` above 0, got {cap}")
    return cap


def is_zero_blind(attrs: Attrs) -> bool:
    """Whether a row that sees no key is 0. Raises OpError for another attribute `blind`."""
    blind = attrs.get("blind")
    if blind not in (None, "zero"):
        raise OpError(f"expected attribute `blind` to be missing or zero, got {blind}")
    return blind is not None


def ratio_of(attrs: Attrs) -> float:
    """Attribute `ratio`, 0 if it is missing. Raises OpError for what is none."""
    ratio = number_of(attrs, "ratio") if "ratio" in attrs else 0.0
    if not 0 <= ratio < 1:
        raise OpError(f"expected attribute `ratio` from 0 to below 1, got {ratio}")
    return ratio


def dropped_words(attrs: Attrs) -> int:
    """How many of the 2^32 words drop the weight that draws one: those below it."""
    return round(ratio_of(attrs) * 2**32)


Part = TypeVar("Part", bound=TensorType | Array | Value)


@dataclass(frozen=True)
class Parts(Generic[Part]):
    """The operands of attention, by what they are."""

    q: Part
    k: Part
    v: Part
    mask: Part | None
    seed: Part | None


def parts_of(operands: Sequence[Part]) -> Parts[Part]:
    """q, k, v, and a mask and a seed as far as there are; the seed is i64, which no mask is."""
    q, k, v, *more = operands
    masks = [x for x in more if not _is_seed(x)]
    seeds = [x for x in more if _is_seed(x)]
    return Parts(q, k, v, masks[-1] if masks else None, seeds[-1] if seeds else None)


def _is_seed(x: TensorType | Array | Value) -> bool:
    if isinstance(x, np.ndarray):
        return x.dtype == np.int64
    return (x.type if isinstance(x, Value) else x).dtype is DType.I64


def require_fitting(operands: Sequence[TensorType], attrs: Attrs) -> None:
    """Raise OpError unless q, k, v, a mask and a seed as far as there are fit each other and the attributes."""
    if len(operands) not in (3, 4, 5):
        raise OpError(f"expected the operands q, k, v and maybe a mask and a seed, got {len(operands)}")
    q, k, v = operands[:3]
    axis = axis_of(attrs, q)
    number_of(attrs, "scale")
    window_of(attrs)
    diagonal_of(attrs)
    cap_of(attrs)
    is_zero_blind(attrs)
    _require_dropout(operands, attrs)
    if not q.dtype.is_float or any(t.dtype is not q.dtype for t in (k, v)):
        raise OpError(f"expected floats of one type, got {', '.join(map(str, operands))}")
    if q.rank < 2 or axis == q.rank - 1:
        raise OpError(f"expected an `axis` before the last one of {q}, got {axis}")
    if k.rank != q.rank or k.shape[-1] != q.shape[-1] or not _divide(heads_of(k, axis), heads_of(q, axis)):
        raise OpError(f"expected keys of {q} with any extent of axis {axis}, and as many heads or a divisor, got {k}")
    if v.rank != q.rank or v.shape[:-1] != k.shape[:-1]:
        raise OpError(f"expected values for the keys {k}, got {v}")
    if len(operands) == 5 and not _is_seed(operands[4]):
        raise OpError(f"expected a mask and then a seed, got {operands[3]} and {operands[4]}")
    if len(operands) == 5 or parts_of(operands).mask is not None:  # One of two seeds is no mask.
        _require_mask(operands[3], q.with_shape(scores_of(q, k, axis)))


def _require_dropout(operands: Sequence[TensorType], attrs: Attrs) -> None:
    """A seed where there is a `ratio`, and neither or both."""
    seed = parts_of(operands).seed
    if (ratio_of(attrs) > 0) != (seed is not None) or ("stream" in attrs) != (seed is not None):
        raise OpError(f"expected a seed, `ratio` and `stream`, or none of them, got {seed} and {dict(attrs)}")
    if seed is not None:
        require_draw(seed, attrs)


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


def evaluate_scores(q: Array, k: Array, mask: Array | None, attrs: Attrs) -> tuple[Array, Array | None]:
    """scale q k^T, capped and masked, and what a gradient in it is times by its cap, if there is one; q and the repeated k are
    [heads..., rows, columns]."""
    slope, cap = None, cap_of(attrs)
    with np.errstate(invalid="ignore", over="ignore"):
        scores: Array = np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(number_of(attrs, "scale"))
        if cap is not None:
            share = np.tanh(scores / scores.dtype.type(cap))
            scores, slope = share * scores.dtype.type(cap), 1 - share * share
        if mask is not None:
            hidden = scores.dtype.type(-np.inf)
            scores = np.where(mask, scores, hidden) if mask.dtype == bool else scores + mask
    diagonal, window = diagonal_of(attrs), window_of(attrs)
    if diagonal is None:
        return scores, slope
    rows, columns = scores.shape[-2:]
    seen = np.tri(rows, columns, k=diagonal, dtype=bool)
    if window is not None:
        seen &= ~np.tri(rows, columns, k=diagonal - window, dtype=bool)
    return np.where(seen, scores, scores.dtype.type(-np.inf)), slope


def kept_weights(seed: Array | None, attrs: Attrs, weights: Array) -> Array | None:
    """What dropout multiplies weights [heads..., rows, columns] by; None if there is none."""
    if seed is None:
        return None
    word = drawn(seed, int_attr(attrs, "stream"), weights.shape)[0]
    one = weights.dtype.type(1 / (1 - ratio_of(attrs)))
    kept: Array = np.where(word < np.uint64(dropped_words(attrs)), weights.dtype.type(0), one)
    return kept


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


def build_scores(b: IRBuilder, q: Value, k: Value, mask: Value | None, attrs: Attrs) -> tuple[Value, Value | None]:
    """As `evaluate_scores`, written out."""
    scores = b.op("matmul", [q, k], transpose_a=False, transpose_b=True)
    dtype = scores.type.dtype
    scores = b.op("mul", [scores, b.scalar(number_of(attrs, "scale"), dtype)])
    slope, cap = None, cap_of(attrs)
    if cap is not None:
        share = b.op("tanh", [b.op("mul", [scores, b.scalar(1 / cap, dtype)])])
        scores = b.op("mul", [share, b.scalar(cap, dtype)])
        slope = b.op("sub", [b.scalar(1, dtype), b.op("mul", [share, share])])
    if mask is not None:
        scores = _hidden(b, mask, scores) if mask.type.dtype is DType.BOOL else b.op("add", [scores, mask])
    diagonal, window = diagonal_of(attrs), window_of(attrs)
    if diagonal is None:
        return scores, slope
    rows, columns = scores.type.shape[-2:]
    row = b.op("iota", [], shape=(rows, 1), axis=0, dtype=DType.I64)
    column = b.op("iota", [], shape=(1, columns), axis=1, dtype=DType.I64)
    last = b.op("add", [row, b.scalar(diagonal, DType.I64)])
    seen = b.op("less_equal", [column, last])
    if window is not None:
        late = b.op("greater", [column, b.op("sub", [last, b.scalar(window, DType.I64)])])
        seen = b.op("logical_and", [seen, late])
    return _hidden(b, seen, scores), slope


def build_blind(b: IRBuilder, most: Value) -> Value:
    """Which rows see no key, of the greatest score of each; one of nan is none of them."""
    return b.op("equal", [most, b.scalar(-np.inf, most.type.dtype)])


def build_dropped(b: IRBuilder, x: Value, seed: Value | None, attrs: Attrs) -> Value:
    """Weights, or their gradient, that dropout leaves."""
    if seed is None:
        return x
    return b.op("dropout", [x, seed], ratio=ratio_of(attrs), stream=int_attr(attrs, "stream"))


def _hidden(b: IRBuilder, seen: Value, scores: Value) -> Value:
    return b.op("select", [seen, scores, b.scalar(-np.inf, scores.type.dtype)])


def seen_scores(op: Op) -> int:
    """How many scores the softmax of an attention op is of: those that its `diagonal` and `window` hide do not count."""
    q, k = (v.type for v in op.operands[:2])
    *heads, rows, columns = scores_of(q, k, axis_of(op.attrs, q))
    diagonal, window = diagonal_of(op.attrs), window_of(op.attrs)
    seen = rows * columns
    if diagonal is not None:
        ends = [i + diagonal + 1 for i in range(rows)]
        seen = sum(min(max(end, 0), columns) for end in ends)
        seen -= sum(min(max(end - window, 0), columns) for end in ends) if window is not None else 0
    for n in heads:
        seen *= n
    return seen
