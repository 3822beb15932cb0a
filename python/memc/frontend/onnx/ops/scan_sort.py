# SPDX-License-Identifier: Apache-2.0
"""CumSum, CumProd and TopK."""

from __future__ import annotations

from collections.abc import Sequence

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.ops.shared.casts import cast, widen

from .reduction import resolve_axis


def _cumulative(ctx: NodeContext, name: str) -> Sequence[Known]:
    x = ctx.value(0)
    axis = resolve_axis(ctx, ctx.ints(1)[0], x.type.rank)
    exclusive, reverse = bool(ctx.attr("exclusive", 0)), bool(ctx.attr("reverse", 0))
    found = ctx.b.op(name, [widen(ctx.b, x)], axis=axis, exclusive=exclusive, reverse=reverse)
    return [cast(ctx.b, found, x.type.dtype)]


@imports("CumSum")
def cumsum(ctx: NodeContext) -> Sequence[Known]:
    return _cumulative(ctx, "cumsum")


@imports("CumProd")
def cumprod(ctx: NodeContext) -> Sequence[Known]:
    return _cumulative(ctx, "cumprod")


@imports("TopK")
def top_k(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    axis = resolve_axis(ctx, ctx.attr("axis", -1), x.type.rank)
    k = int(ctx.attr("k", 0)) if ctx.opset < 10 else ctx.ints(1)[0]
    if not 0 <= k <= x.type.shape[axis]:
        raise ctx.unsupported(f"expected k from 0 to {x.type.shape[axis]}, got {k}")
    return ctx.b.multi("top_k", [x], axis=axis, k=k, largest=bool(ctx.attr("largest", 1))).results
