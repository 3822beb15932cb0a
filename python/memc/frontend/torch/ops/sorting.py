# SPDX-License-Identifier: Apache-2.0
"""Sorting and the greatest elements."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value

from ..context import NodeContext, converts


@converts("aten.topk.default")
def topk(ctx: NodeContext) -> Sequence[Value]:
    x = ctx.value("self")
    axis = ctx.axis(int(ctx.get("dim", -1)), x.type.rank)
    return ctx.b.multi("top_k", [x], axis=axis, k=int(ctx.get("k")), largest=bool(ctx.get("largest", True))).results


def _sorted(ctx: NodeContext) -> Sequence[Value]:
    x = ctx.value("self")
    axis = ctx.axis(int(ctx.get("dim", -1)), x.type.rank)
    descending = bool(ctx.get("descending", False))
    return ctx.b.multi("top_k", [x], axis=axis, k=x.type.shape[axis], largest=descending).results


@converts("aten.sort.default", "aten.sort.stable")
def sort(ctx: NodeContext) -> Sequence[Value]:
    return _sorted(ctx)


@converts("aten.argsort.default", "aten.argsort.stable")
def argsort(ctx: NodeContext) -> Value:
    return _sorted(ctx)[1]
