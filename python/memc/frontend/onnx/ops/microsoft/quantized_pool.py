# SPDX-License-Identifier: Apache-2.0
"""QLinearAveragePool, QLinearGlobalAveragePool and QLinearReduceMean."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.reduce import mean, reduce
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..conv_pool import geometry
from ..reduction import resolve_axis
from .domain import INT, INTS, TEXT, microsoft
from .linear import centred, quantized, ratio, real, require_small, saturated


def _require_spatial(ctx: NodeContext) -> int:
    """The rank of input 0, which must have spatial axes."""
    rank = ctx.type(0).rank
    if rank < 3:
        raise ctx.unsupported(f"expected an input of rank 3 or more, got {ctx.type(0)}")
    return rank


def _channels_first(ctx: NodeContext, x: Value, back: bool = False) -> Value:
    """`x` with its channels, which the node has last, behind the batch; or `back`."""
    rank = x.type.rank
    if not ctx.attr("channels_last", 0):
        return x
    perm = (0, *range(2, rank), 1) if back else (0, rank - 1, *range(1, rank - 1))
    return ctx.b.op("transpose", [x], perm=perm)


@microsoft(
    "QLinearAveragePool",
    inputs=(4, 5),
    required=("kernel_shape",),
    auto_pad=TEXT,
    ceil_mode=INT,
    channels_last=INT,
    count_include_pad=INT,
    kernel_shape=INTS,
    pads=INTS,
    strides=INTS,
)
def qlinear_average_pool(ctx: NodeContext) -> Sequence[Known]:
    to = require_small(ctx, 0, 2, 4)
    _require_spatial(ctx)
    x = _channels_first(ctx, real(ctx, 0, 1, 2))
    shape = geometry(ctx, tuple(int(k) for k in ctx.attr("kernel_shape")), x.type.shape[2:])
    padded = bool(ctx.attr("count_include_pad", 0))
    # Unlike in AveragePool, what only ceil_mode adds counts as padding.
    extra = (0,) * len(shape.kernel)
    found = ctx.b.op("avg_pool", [x], **shape.attrs(kernel=True), extra=extra, count_include_pad=padded)
    in_units = ctx.b.op("div", [found, ratio(ctx, [3])])
    return [_channels_first(ctx, saturated(ctx, in_units, 4, to, shifted=True), back=True)]


@microsoft("QLinearGlobalAveragePool", inputs=(5, 5), channels_last=INT)
def qlinear_global_average_pool(ctx: NodeContext) -> Sequence[Known]:
    """The sum is exact, in i32."""
    b, to, rank = ctx.b, require_small(ctx, 0, 2, 4), _require_spatial(ctx)
    x = centred(ctx, 0, 2)
    axes = tuple(range(1, rank - 1)) if ctx.attr("channels_last", 0) else tuple(range(2, rank))
    count = math.prod(x.type.shape[a] for a in axes)
    if not 0 < count < 1 << 23:
        raise ctx.unsupported(f"a mean of {count} elements")
    total = cast(b, reduce(b, "sum", x, axes, True), DType.F32)
    return [saturated(ctx, b.op("mul", [total, ratio(ctx, [1], [3], count=count)]), 4, to)]


@microsoft("QLinearReduceMean", inputs=(4, 5), required=("axes", "keepdims"), axes=INTS, keepdims=INT)
def qlinear_reduce_mean(ctx: NodeContext) -> Sequence[Known]:
    to, rank = require_small(ctx, 0, 2, 4), ctx.type(0).rank
    axes = sorted({resolve_axis(ctx, int(a), rank) for a in ctx.attr("axes")}) or list(range(rank))
    found = mean(ctx.b, real(ctx, 0, 1, 2), axes, bool(ctx.attr("keepdims")))
    return [quantized(ctx, found, 3, 4, to)]
