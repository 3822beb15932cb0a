# SPDX-License-Identifier: Apache-2.0
"""Views as they are or as other element types, and what becomes of gradients."""

from __future__ import annotations

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ..context import NodeContext, converts
from ..handles import Handle, View, fresh
from .views import is_strided_view


def _itself(ctx: NodeContext) -> Handle:
    return ctx.view(ctx.handle("self"), View(lambda b, x: x, lambda b, base, new: new))


@converts("aten.alias.default", "aten.view.dtype", "aten.detach.default")
def alias(ctx: NodeContext) -> Handle:
    if ctx.node.target == "aten.view.dtype":
        return fresh(_bits(ctx))
    if ctx.node.target in ("aten.detach.default") and ctx.trainable:
        return without_gradient(ctx, ctx.handle("self"))
    return _itself(ctx)


@converts("aten.detach_.default")
def detach_(ctx: NodeContext) -> Handle:
    return ctx.handle("self")


def _bits(ctx: NodeContext) -> Value:
    x, to = ctx.value("self"), ctx.get("dtype")
    if not isinstance(to, DType) or to.itemsize != x.type.dtype.itemsize:
        raise ctx.unsupported("a view as elements of another size")
    return x if to is x.type.dtype else ctx.b.op("bitcast", [x], to=to)


_INTEGERS = {2: DType.I16, 4: DType.I32, 8: DType.I64}


def without_gradient(ctx: NodeContext, handle: Handle) -> Handle:
    """A tensor through which no gradient flows: by way of integers of the same bits."""
    x, b = handle.read(ctx.b), ctx.b
    if not x.type.dtype.is_float or x.op is None:
        return handle
    return fresh(b.op("bitcast", [b.op("bitcast", [x], to=_INTEGERS[x.type.dtype.itemsize])], to=x.type.dtype))


@converts("aten.contiguous.default")
def contiguous(ctx: NodeContext) -> Handle:
    """The tensor itself; written to later, only one that is contiguous already is written to as well."""
    arg = ctx.node.args["self"]
    meta = ctx.metas.get(getattr(arg, "name", ""))
    x = ctx.value("self")
    if is_strided_view(meta, (x.type.elements,), ctx.state.symbols):
        return _itself(ctx)
    return fresh(x)


@converts("aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other", "aten.type_as.default")
def to(ctx: NodeContext) -> Handle:
    x = ctx.value("self")
    wanted = ctx.value("other").type.dtype if ctx.has("other") else ctx.get("dtype", x.type.dtype)
    if not isinstance(wanted, DType):
        raise ctx.unsupported(f"elements of type {wanted}")
    if wanted is x.type.dtype and not ctx.get("copy", False):
        return _itself(ctx)
    return fresh(converted(ctx, x, wanted))


def converted(ctx: NodeContext, x: Value, wanted: DType) -> Value:
    """x as elements of another type."""
    return cast(ctx.b, x, wanted)
