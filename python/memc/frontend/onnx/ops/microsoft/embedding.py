# SPDX-License-Identifier: Apache-2.0
"""EmbedLayerNormalization and QEmbedLayerNormalization: the sum of a token's embeddings, normalized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.reduce import reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..reduction import wants
from ..structure import cut
from .domain import FLOAT, INT, microsoft, require_float, require_rank, require_shape
from .linear import number as number_of
from .linear import ratio, require_small
from .normalization import EPSILON, layer_norm


def positions(ctx: NodeContext, table: Value, index: int | None) -> Value:
    """Rows of the position embedding [rows, hidden] for the ids of input 0 [batch, tokens]: in order, or by input `index`."""
    batch, tokens = ctx.type(0).shape
    if index is None or not ctx.has(index):
        if table.type.shape[0] < tokens:
            raise ctx.unsupported(f"expected position embeddings for {tokens} tokens, got {table.type}")
        return cut(ctx, table, {0: (0, tokens, 1)})
    if ctx.type(index).shape not in ((batch, tokens), (1, tokens)):
        raise ctx.unsupported(f"expected position ids [{batch} or 1, {tokens}], got {ctx.type(index)}")
    return ctx.b.op("gather", [table, ctx.value(index)], axis=0)


def mask_index(ctx: NodeContext, mask: int) -> Known:
    """How many tokens of each sequence the mask, input `mask`, names: [batch], 0 without a mask."""
    batch, tokens = ctx.type(0).shape
    if not ctx.has(mask):
        return np.zeros(batch, np.int32)
    require_shape(ctx, mask, (batch, tokens), "a mask")
    named = ctx.b.op("equal", [ctx.value(mask), ctx.b.scalar(1, ctx.type(mask).dtype)])
    return reduce(ctx.b, "sum", cast(ctx.b, named, DType.I32), [1], False)


def _check(ctx: NodeContext, words: int, segments: int) -> None:
    """Refuse embeddings that are no matrices, and segment ids without an embedding of segments, or the reverse."""
    require_rank(ctx, 0, 2, "ids")
    for index in (words, words + 1, segments):
        if ctx.has(index):
            require_rank(ctx, index, 2, "an embedding")
    if ctx.has(1) != ctx.has(segments):
        raise ctx.unsupported("expected segment ids and a segment embedding, or neither")
    if ctx.has(1):
        require_shape(ctx, 1, ctx.type(0).shape, "segment ids")


@microsoft("EmbedLayerNormalization", inputs=(7, 9), outputs=3, epsilon=FLOAT, mask_index_type=INT)
def embed_layer_normalization(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: ids, segment ids, the embeddings of words, positions and segments, gamma, beta, mask, position ids."""
    b = ctx.b
    dtype = require_float(ctx, 2, 3, 4, 5, 6)
    _check(ctx, 2, 4)
    words = b.op("gather", [ctx.value(2), ctx.value(0)], axis=0)
    total = b.op("add", [widen(b, words), widen(b, positions(ctx, ctx.value(3), 8))])
    if ctx.has(1):
        total = b.op("add", [total, widen(b, b.op("gather", [ctx.value(4), ctx.value(1)], axis=0))])
    found = cast(b, layer_norm(ctx, total, 5, 6, float(ctx.attr("epsilon", EPSILON))), dtype)
    if not wants(ctx, 1) and not wants(ctx, 2):
        return [found]
    counts = mask_index(ctx, 7)
    return [found, counts, cast(b, total, dtype)] if wants(ctx, 2) else [found, counts]


@microsoft("QEmbedLayerNormalization", inputs=(18, 18), outputs=2, epsilon=FLOAT)
def qembed_layer_normalization(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: as of EmbedLayerNormalization up to the mask; then the scales of the five tables, and their zero points."""
    b = ctx.b
    _check(ctx, 2, 4)

    def table(number: int, data: Value) -> Value:
        """`data`, of table `number` of five, as the f32 that it stands for."""
        require_small(ctx, 2 + number, 13 + number)
        centred = b.op("sub", [cast(b, data, DType.F32), cast(b, number_of(ctx, 13 + number), DType.F32)])
        return b.op("mul", [centred, ratio(ctx, [8 + number])])

    total = table(0, b.op("gather", [ctx.value(2), ctx.value(0)], axis=0))
    total = b.op("add", [total, table(1, positions(ctx, ctx.value(3), None))])
    if ctx.has(1):
        total = b.op("add", [total, table(2, b.op("gather", [ctx.value(4), ctx.value(1)], axis=0))])
    for index in (5, 6):
        require_shape(ctx, index, total.type.shape[-1:], "gamma and beta")
    parameters = [table(3, ctx.value(5)), table(4, ctx.value(6))]
    epsilon = float(ctx.attr("epsilon", EPSILON))
    found = b.op("layer_norm", [total, *parameters], axis=total.type.rank - 1, epsilon=epsilon)
    return [found, mask_index(ctx, 7)] if wants(ctx, 1) else [found]
