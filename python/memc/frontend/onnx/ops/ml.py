# SPDX-License-Identifier: Apache-2.0
"""Binarizer and ArrayFeatureExtractor of domain ai.onnx.ml, and TfIdfVectorizer over integer tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Array, Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

_DOMAIN = "ai.onnx.ml"


@imports("Binarizer", _DOMAIN)
def binarizer(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    threshold = ctx.b.scalar(float(ctx.attr("threshold", 0.0)), x.type.dtype)
    return [cast(ctx.b, ctx.b.op("greater", [x, threshold]), x.type.dtype)]


@imports("ArrayFeatureExtractor", _DOMAIN)
def array_feature_extractor(ctx: NodeContext) -> Sequence[Known]:
    """Columns of input 0 by the positions in input 1; a vector becomes a matrix of one row."""
    b, x = ctx.b, ctx.value(0)
    positions = b.op("reshape", [ctx.value(1)], shape=(ctx.type(1).elements,))
    if x.type.rank == 1:
        x = b.op("reshape", [x], shape=(1, x.type.elements))
    return [b.op("gather", [x, positions], axis=x.type.rank - 1)]


def ngrams(pool: Array, starts: Sequence[int], shortest: int, longest: int) -> dict[int, tuple[Array, Array]]:
    """N-grams [count, n] of each length n in range, and their numbers over the whole pool.

    `starts[n - 1]` is where in the pool those of length n begin.
    """
    found: dict[int, tuple[Array, Array]] = {}
    number = 0
    for n, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
        count = (stop - start) // n
        if count and shortest <= n <= longest:
            found[n] = pool[start : start + count * n].reshape(count, n), np.arange(number, number + count)
        number += count
    return found


def _occurrences(ctx: NodeContext, tokens: Value, grams: Array, distance: int) -> Value | None:
    """How often each n-gram [count, n] occurs in each row of `tokens` [b, c], with `distance` between its tokens."""
    b, (batch, length), (count, n) = ctx.b, tokens.type.shape, grams.shape
    places = length - distance * (n - 1)
    if places < 1:
        return None
    matches: Value | None = None
    for i in range(n):
        begin = i * distance
        part = b.op("slice", [tokens], starts=(0, begin), stops=(batch, begin + places), steps=(1, 1))
        part = b.op("reshape", [part], shape=(batch, places, 1))
        equal = b.op("equal", [part, b.constant(grams[:, i].reshape(1, 1, count).astype(part.type.dtype.numpy))])
        matches = equal if matches is None else b.op("logical_and", [matches, equal])
    assert matches is not None
    return b.op("reduce_sum", [cast(b, matches, DType.F32)], axes=(1,), keepdims=False)


@imports("TfIdfVectorizer")
def tf_idf_vectorizer(ctx: NodeContext) -> Sequence[Known]:
    """Counts by comparing every place with every n-gram, then moved to their columns by a product."""
    b, x = ctx.b, ctx.value(0)
    pool, mode = ctx.attr("pool_int64s"), ctx.attr("mode")
    if not pool or x.type.rank not in (1, 2) or not x.type.dtype.is_integer:
        raise ctx.unsupported("expected integer tokens of rank 1 or 2 and attribute pool_int64s")
    shortest, longest = int(ctx.attr("min_gram_length")), int(ctx.attr("max_gram_length"))
    columns = np.asarray(ctx.attr("ngram_indexes"), dtype=np.int64)
    width = int(columns.max()) + 1
    tokens = x if x.type.rank == 2 else b.op("reshape", [x], shape=(1, x.type.elements))
    batch = tokens.type.shape[0]
    total: Value | None = None
    for n, (grams, numbers) in ngrams(np.asarray(pool), ctx.attr("ngram_counts"), shortest, longest).items():
        # A single token is the same at every distance and counts once.
        for distance in range(1, 2 + (int(ctx.attr("max_skip_count")) if n > 1 else 0)):
            counts = _occurrences(ctx, tokens, grams, distance)
            if counts is None:
                continue
            place = np.zeros((len(numbers), width), dtype=np.float32)
            place[np.arange(len(numbers)), columns[numbers]] = 1
            moved = b.op("matmul", [counts, b.constant(place)], transpose_a=False, transpose_b=False)
            total = moved if total is None else b.op("add", [total, moved])
    if total is None:
        return [np.zeros((width,) if x.type.rank == 1 else (batch, width), dtype=np.float32)]
    if mode == "IDF":
        total = cast(b, b.op("greater", [total, b.scalar(0, DType.F32)]), DType.F32)
    if mode != "TF" and ctx.attr("weights"):
        weights = np.ones(width, dtype=np.float32)
        weights[columns] = ctx.attr("weights")
        total = b.op("mul", [total, b.constant(weights)])
    return [total if x.type.rank == 2 else b.op("reshape", [total], shape=(width,))]
