# SPDX-License-Identifier: Apache-2.0
"""EmbedLayerNormalization: the sum of a token's embeddings, normalized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.reduce import reduce
from memc.ir.ops.rules.casts import cast, widen
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..reduction import wants
from ..structure import cut
from .domain import FLOAT, INT, microsoft, require_float, require_rank, require_shape
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


@microsoft("EmbedLayerNormalization", inputs=(7, 9), outputs=3, epsilon=FLOAT, mask_index_type=INT)
def embed_layer_normalization(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: ids, segment ids, the embeddings of words, positions and segments, gamma, beta, mask, position ids."""
    b = ctx.b
    dtype = require_float(ctx, 2, 3, 4, 5, 6)
    require_rank(ctx, 0, 2, "ids")
    for index in (2, 3, 4):
        if ctx.has(index):
            require_rank(ctx, index, 2, "an embedding")
    if ctx.has(1) != ctx.has(4):
        raise ctx.unsupported("expected segment ids and a segment embedding, or neither")
    words = b.op("gather", [ctx.value(2), ctx.value(0)], axis=0)
    total = b.op("add", [widen(b, words), widen(b, positions(ctx, ctx.value(3), 8))])
    if ctx.has(1):
        require_shape(ctx, 1, ctx.type(0).shape, "segment ids")
        segments = b.op("gather", [ctx.value(4), ctx.value(1)], axis=0)
        total = b.op("add", [total, widen(b, segments)])
    found = cast(b, layer_norm(ctx, total, 5, 6, float(ctx.attr("epsilon", EPSILON))), dtype)
    if not wants(ctx, 1) and not wants(ctx, 2):
        return [found]
    counts = mask_index(ctx, 7)
    return [found, counts, cast(b, total, dtype)] if wants(ctx, 2) else [found, counts]
