# SPDX-License-Identifier: Apache-2.0
"""Sorting, the greatest elements, and those in the middle."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ..context import NodeContext, converts
from .views import cut, reshaped


def _first(ctx: NodeContext, x: Value, axis: int, count: int, largest: bool) -> list[Value]:
    """The first `count` elements of an axis in order, and where they were."""
    b, shape, dtype = ctx.b, x.type.shape, x.type.dtype
    ranked = reshaped(b, x, shape or (1,))
    compared = cast(b, ranked, DType.I32) if dtype is DType.BOOL else ranked
    found, at = b.multi("top_k", [compared], axis=axis, k=count, largest=largest).results
    found = cast(b, found, dtype)
    return [found, at] if shape else [reshaped(b, found, ()), reshaped(b, at, ())]


@converts("aten.topk.default")
def topk(ctx: NodeContext) -> Sequence[Value]:
    x = ctx.value("self")
    axis, count = ctx.axis(int(ctx.get("dim", -1)), x.type.rank), int(ctx.get("k"))
    if not x.type.rank and count != 1:
        raise ctx.unsupported(f"the {count} greatest of one number")
    return _first(ctx, x, axis, count, bool(ctx.get("largest", True)))


def _sorted(ctx: NodeContext) -> list[Value]:
    x = ctx.value("self")
    axis = ctx.axis(int(ctx.get("dim", -1)), x.type.rank)
    return _first(ctx, x, axis, (x.type.shape or (1,))[axis], bool(ctx.get("descending", False)))


@converts("aten.sort.default", "aten.sort.stable")
def sort(ctx: NodeContext) -> Sequence[Value]:
    return _sorted(ctx)


@converts("aten.argsort.default", "aten.argsort.stable")
def argsort(ctx: NodeContext) -> Value:
    return _sorted(ctx)[1]


@converts("aten.msort.default")
def msort(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    return _first(ctx, x, 0, (x.type.shape or (1,))[0], False)[0]


@converts("aten.kthvalue.default")
def kthvalue(ctx: NodeContext) -> Sequence[Value]:
    """The kth smallest element of an axis, and where it is."""
    x, k, keep = ctx.value("self"), int(ctx.get("k")), bool(ctx.get("keepdim", False))
    axis = ctx.axis(int(ctx.get("dim", -1)), x.type.rank)
    found = _first(ctx, x, axis, k, False)
    if not x.type.rank:
        return found
    shape = x.type.shape
    wanted = (*shape[:axis], *([1] if keep else []), *shape[axis + 1 :])
    return [reshaped(ctx.b, cut(ctx.b, v, axis, (k - 1, k, 1)), wanted) for v in found]
