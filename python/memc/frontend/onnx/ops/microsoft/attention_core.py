# SPDX-License-Identifier: Apache-2.0
"""What Attention, QAttention and MultiHeadAttention share: masks, earlier keys and values, and the attention itself.

It is written as the ops that `recognize-attention` looks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..matmul import product
from ..structure import reshape
from .domain import require_shape


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values, heads before positions: [batch, heads, positions, columns]."""

    q: Value
    k: Value
    v: Value

    @property
    def scores(self) -> tuple[int, ...]:
        return (*self.q.type.shape[:3], self.k.type.shape[2])


def heads_first(ctx: NodeContext, x: Value, heads: int) -> Value:
    """[batch, positions, heads * columns] as [batch, heads, positions, columns]."""
    batch, positions, width = x.type.shape
    if heads < 1 or width % heads:
        raise ctx.unsupported(f"expected columns for {heads} heads, got {width}")
    apart = reshape(ctx, x, (batch, positions, heads, width // heads))
    return ctx.b.op("transpose", [apart], perm=(0, 2, 1, 3))


def after(ctx: NodeContext, past: Value | None, new: Value) -> Value:
    """Keys or values of earlier positions, if there are any, before the new ones."""
    return new if past is None else ctx.b.op("concat", [past, new], axis=2)


def heads_of(ctx: NodeContext) -> int:
    count = int(ctx.attr("num_heads", 0))
    if count < 1:
        raise ctx.unsupported(f"num_heads {count}")
    return count


def _kept(ctx: NodeContext, index: int, batch: int, queries: int, keys: int) -> tuple[Known, tuple[int, ...]] | None:
    """Which keys the mask, input `index`, keeps, as booleans, and the shape that these take; None for all keys."""
    mask = ctx.type(index)
    if not mask.dtype.is_integer:
        raise ctx.unsupported(f"expected a mask of integers, got {mask}")
    if mask.shape in ((batch,), (2 * batch,)):
        return _within(ctx, index, batch, keys), (batch, 1, 1, keys)
    if mask.shape == (batch, keys):
        return _positive(ctx, index), (batch, 1, 1, keys)
    if mask.shape == (batch, queries, keys):
        return _positive(ctx, index), (batch, 1, queries, keys)
    if mask.shape in ((batch, 1), (1, 1)) and ctx.node.op_type != "MultiHeadAttention":
        # Equal for all keys, which makes no difference.
        return None
    kinds = f"[{batch}], [{batch}, {keys}] or [{batch}, {queries}, {keys}]"
    raise ctx.unsupported(f"expected a mask of shape {kinds}, got {mask}")


def _positive(ctx: NodeContext, index: int) -> Known:
    known = ctx.known(index)
    if known is not None:
        return np.asarray(known > 0)
    return ctx.b.op("greater", [ctx.value(index), ctx.b.scalar(0, ctx.type(index).dtype)])


def _within(ctx: NodeContext, index: int, batch: int, keys: int) -> Known:
    """Keys before the ends that the mask [batch] gives, and from the starts on that may follow: [batch, keys]."""
    known, starts = ctx.known(index), ctx.type(index).shape[0] > batch
    if known is not None:
        positions = np.arange(keys)
        kept = positions < known[:batch, None]
        return kept & (positions >= known[batch:, None]) if starts else kept
    b, mask = ctx.b, ctx.value(index)
    at = b.op("iota", [], shape=(1, keys), axis=1, dtype=mask.type.dtype)
    columns = [
        b.op("reshape", [b.op("slice", [mask], starts=(n,), stops=(n + batch,), steps=(1,))], shape=(batch, 1))
        for n in ((0, batch) if starts else (0,))
    ]
    found = b.op("less", [at, columns[0]])
    return b.op("logical_and", [found, b.op("greater_equal", [at, columns[1]])]) if starts else found


def mask_of(ctx: NodeContext, heads: Heads, mask: int, causal: bool, bias: int | None = None) -> Value | None:
    """What is added to the scores: mask_filter_value where the mask, input `mask`, keeps a key back, the lowest number
    where the key comes after the query if `causal`, and input `bias`. None if that is nothing."""
    b, dtype = ctx.b, heads.q.type.dtype
    batch, count, queries, keys = heads.scores
    sum_known, parts = np.zeros((), np.float64), []
    if causal:
        positions = np.arange(keys) - (keys - queries)
        late = positions[None, :] > np.arange(queries)[:, None]
        sum_known = np.where(late, _lowest(dtype), 0.0)
    if ctx.has(mask):
        found = _kept(ctx, mask, batch, queries, keys)
        low = float(ctx.attr("mask_filter_value", -10000.0))
        if found is not None and isinstance(found[0], np.ndarray):
            sum_known = np.maximum(sum_known + np.where(found[0], 0.0, low).reshape(found[1]), _lowest(dtype))
        elif found is not None and isinstance(found[0], Value):
            chosen = b.op("select", [found[0], b.scalar(0, dtype), b.scalar(max(low, _lowest(dtype)), dtype)])
            parts.append(reshape(ctx, chosen, found[1]))
    if bias is not None and ctx.has(bias):
        given = ctx.type(bias)
        if given.rank != 4 or any(n not in (1, m) for n, m in zip(given.shape[:2], (batch, count))):
            raise ctx.unsupported(f"expected an attention_bias that broadcasts to {list(heads.scores)}, got {given}")
        require_shape(ctx, bias, (*given.shape[:2], queries, keys), "an attention_bias")
        parts.append(cast(b, ctx.value(bias), dtype))
    if sum_known.any():
        parts.insert(0, b.constant(sum_known.astype(dtype.numpy)))
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = b.op("add", [total, part])
    return total


def _lowest(dtype: DType) -> float:
    """The lowest finite number of a float type."""
    return float(ml_dtypes.finfo(dtype.numpy).min)


def attend(ctx: NodeContext, heads: Heads, mask: Value | None) -> tuple[Value, Value]:
    """softmax(scale q k^T + mask) v as [batch, positions, heads * columns], and the scores with the mask."""
    b, width = ctx.b, heads.q.type.shape[3]
    scale = float(ctx.attr("scale", 0.0)) or 1 / math.sqrt(width)
    scores = product(b, heads.q, heads.k, transpose_b=True)
    scores = b.op("mul", [scores, b.scalar(scale, scores.type.dtype)])
    if mask is not None:
        scores = b.op("add", [scores, mask])
    found = product(b, b.op("softmax", [scores], axis=3), heads.v)
    back = b.op("transpose", [found], perm=(0, 2, 1, 3))
    batch, queries, count, columns = back.type.shape
    return reshape(ctx, back, (batch, queries, count * columns)), scores


def past_and_present(ctx: NodeContext, past: int, k: Value, v: Value) -> tuple[Value, Value, Known | None]:
    """Keys and values after those of input `past` [2, batch, heads, earlier, columns], and both as output `present`."""
    b = ctx.b
    earlier: Sequence[Value | None] = (None, None)
    batch, count, _, width = k.type.shape
    if ctx.has(past):
        given = ctx.value(past)
        if k.type.shape != v.type.shape:
            raise ctx.unsupported(f"a past with keys {k.type} and values {v.type}")
        length = given.type.shape[3] if given.type.rank == 5 else 0
        require_shape(ctx, past, (2, batch, count, length, width), "a past")
        if length:
            shape = (batch, count, length, width)
            stops = (batch, count, length, width)
            earlier = [
                reshape(
                    ctx, b.op("slice", [given], starts=(n, 0, 0, 0, 0), stops=(n + 1, *stops), steps=(1,) * 5), shape
                )
                for n in range(2)
            ]
    k, v = after(ctx, earlier[0], k), after(ctx, earlier[1], v)
    if len(ctx.node.output) < 2 or not ctx.node.output[1]:
        return k, v, None
    if k.type.shape != v.type.shape:
        raise ctx.unsupported(f"output 1, present, with keys {k.type} and values {v.type}")
    both = [b.op("reshape", [x], shape=(1, *x.type.shape)) for x in (k, v)]
    return k, v, b.op("concat", both, axis=0)
