# SPDX-License-Identifier: Apache-2.0
"""SkipLayerNormalization and SkipSimplifiedLayerNormalization: a sum, and its normalized form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.layer_norm import normalize
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..normalization import root_mean_square
from ..reduction import wants
from .domain import FLOAT, microsoft, require_float, require_shape

EPSILON = 1e-12
"""The default of attribute epsilon."""


def layer_norm(ctx: NodeContext, x: Value, gamma: int, beta: int, epsilon: float) -> Value:
    """`x` (at least f32) normalized over its last axis, with the scale and bias that inputs `gamma` and `beta` give."""
    width = x.type.shape[-1:]
    operands = [x]
    for index, what in ((gamma, "gamma"), (beta, "beta")):
        if ctx.has(index):
            require_shape(ctx, index, width, what)
            operands.append(cast(ctx.b, ctx.value(index), x.type.dtype))
    return ctx.b.op("layer_norm", operands, axis=x.type.rank - 1, epsilon=epsilon)


def _sum(ctx: NodeContext, bias: int) -> Value:
    """Input plus skip (plus bias), in at least f32, and of the input's shape."""
    b, x = ctx.b, ctx.type(0)
    if x.rank not in (2, 3):
        raise ctx.unsupported(f"expected an input of rank 2 or 3, got {x}")
    skip, shape = ctx.type(1), x.shape
    if skip.shape not in (shape, (1, *shape[1:]), shape[1:]):
        raise ctx.unsupported(f"expected a skip that broadcasts over the batch of {x}, got {skip}")
    found = b.op("add", [widen(b, ctx.value(0)), widen(b, ctx.value(1))])
    if ctx.has(bias):
        require_shape(ctx, bias, shape[-1:], "bias")
        found = b.op("add", [found, widen(b, ctx.value(bias))])
    return found


@microsoft("SkipLayerNormalization", inputs=(3, 5), outputs=4, epsilon=FLOAT)
def skip_layer_normalization(ctx: NodeContext) -> Sequence[Known]:
    dtype = require_float(ctx, 0, 1, 2, 3, 4)
    total, epsilon = _sum(ctx, 4), float(ctx.attr("epsilon", EPSILON))
    found = cast(ctx.b, layer_norm(ctx, total, 2, 3, epsilon), dtype)
    if not wants(ctx, 1) and not wants(ctx, 2):
        return _results(ctx, found, total)
    _, center, inverse = normalize(ctx.b, total, [total.type.rank - 1], epsilon)
    return _results(ctx, found, total, center, inverse)


@microsoft("SkipSimplifiedLayerNormalization", inputs=(3, 4), outputs=4, epsilon=FLOAT)
def skip_simplified_layer_normalization(ctx: NodeContext) -> Sequence[Known]:
    """The mean, which this norm has no use for, is zero."""
    b, dtype = ctx.b, require_float(ctx, 0, 1, 2, 3)
    total = _sum(ctx, 3)
    require_shape(ctx, 2, total.type.shape[-1:], "gamma")
    epsilon = float(ctx.attr("epsilon", EPSILON))
    normalized, spread = root_mean_square(b, total, [total.type.rank - 1], epsilon)
    found = cast(b, b.op("mul", [normalized, cast(b, ctx.value(2), total.type.dtype)]), dtype)
    if not wants(ctx, 1) and not wants(ctx, 2):
        return _results(ctx, found, total)
    return _results(ctx, found, total, np.zeros(spread.type.shape, np.float32), b.op("reciprocal", [spread]))


def _results(
    ctx: NodeContext, found: Value, total: Value, mean: Known | None = None, inverse: Value | None = None
) -> list[Known]:
    """The outputs that the node names; `found` stands for those that it does not."""
    statistics: list[Known] = []
    for value in (mean, inverse):
        statistics.append(
            cast(ctx.b, value, DType.F32) if isinstance(value, Value) else found if value is None else value
        )
    if not wants(ctx, 3):
        return [found, *statistics]
    return [found, *statistics, cast(ctx.b, total, found.type.dtype)]
