# SPDX-License-Identifier: Apache-2.0
"""Gelu, BiasGelu, FastGelu and QuickGelu."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value

from ...context import Known, NodeContext
from .domain import FLOAT, microsoft, require_float


def _biased(ctx: NodeContext) -> Value:
    """Input 0 plus the bias, of one element for each column, if there is one."""
    x = ctx.value(0)
    if not ctx.has(1):
        return x
    if not x.type.rank or ctx.type(1).shape != x.type.shape[-1:]:
        raise ctx.unsupported(f"expected a bias for the last axis of {x.type}, got {ctx.type(1)}")
    return ctx.b.op("add", [x, ctx.value(1)])


@microsoft("Gelu", inputs=(1, 1))
def gelu(ctx: NodeContext) -> Sequence[Known]:
    require_float(ctx, 0)
    return [ctx.b.op("gelu", [ctx.value(0)], approximate="none")]


@microsoft("BiasGelu", inputs=(2, 2))
def bias_gelu(ctx: NodeContext) -> Sequence[Known]:
    require_float(ctx, 0, 1)
    return [ctx.b.op("gelu", [_biased(ctx)], approximate="none")]


@microsoft("FastGelu", inputs=(1, 2))
def fast_gelu(ctx: NodeContext) -> Sequence[Known]:
    require_float(ctx, 0, 1)
    return [ctx.b.op("gelu", [_biased(ctx)], approximate="tanh")]


@microsoft("QuickGelu", inputs=(1, 1), alpha=FLOAT)
def quick_gelu(ctx: NodeContext) -> Sequence[Known]:
    require_float(ctx, 0)
    b, x, alpha = ctx.b, ctx.value(0), float(ctx.attr("alpha", 1.702))
    if alpha == 1.0:
        return [b.op("silu", [x])]
    gate = b.op("sigmoid", [b.op("mul", [x, b.scalar(alpha, x.type.dtype)])])
    return [b.op("mul", [x, gate])]
