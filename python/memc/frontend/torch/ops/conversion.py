# SPDX-License-Identifier: Apache-2.0
"""Views as they are or as other element types, and what becomes of gradients."""

from __future__ import annotations

from memc.ir.build import IRBuilder
from memc.ir.core import Role, Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ..context import NodeContext, converts
from ..handles import Handle, View, fresh
from ..sizes import evaluated
from .views import is_row_major


def _itself(ctx: NodeContext) -> Handle:
    return ctx.view(ctx.handle("self"), View(lambda b, x: x, lambda b, base, new: new))


@converts("aten.alias.default", "aten.view.dtype", "aten.detach.default")
def alias(ctx: NodeContext) -> Handle:
    if ctx.node.target == "aten.view.dtype":
        return ctx.view(ctx.handle("self"), _bits(ctx))
    if ctx.node.target == "aten.detach.default" and ctx.trainable:
        return without_gradient(ctx, ctx.handle("self"))
    return _itself(ctx)


@converts("aten.detach_.default")
def detach_(ctx: NodeContext) -> Handle:
    handle = ctx.handle("self")
    if ctx.trainable and not handle.write(ctx.b, without_gradient(ctx, handle).read(ctx.b)):
        raise ctx.unsupported("detach_ of a view that memc cannot write to")
    return handle


def _bits(ctx: NodeContext) -> View:
    """The same bytes as elements of another type."""
    own, to = ctx.value("self").type.dtype, ctx.get("dtype")
    if not isinstance(to, DType) or to.itemsize != own.itemsize:
        raise ctx.unsupported("a view as elements of another size")

    def seen(b: IRBuilder, x: Value, dtype: DType) -> Value:
        return x if dtype is x.type.dtype else b.op("bitcast", [x], to=dtype)

    return View(lambda b, x: seen(b, x, to), lambda b, base, new: seen(b, new, own))


_INTEGERS = {2: DType.I16, 4: DType.I32, 8: DType.I64}


def without_gradient(ctx: NodeContext, handle: Handle) -> Handle:
    """A tensor through which no gradient flows: by way of integers of the same bits."""
    x, b = handle.read(ctx.b), ctx.b
    if not x.type.dtype.is_float or (x.op is None and not _is_trained(ctx, x)):
        return handle
    return fresh(b.op("bitcast", [b.op("bitcast", [x], to=_INTEGERS[x.type.dtype.itemsize])], to=x.type.dtype))


def _is_trained(ctx: NodeContext, x: Value) -> bool:
    """Whether a value is a parameter that needs a gradient."""
    weight = ctx.state.graph.weights.get(x.name)
    return x.role is Role.WEIGHT and weight is not None and weight.trained


@converts("aten.contiguous.default")
def contiguous(ctx: NodeContext) -> Handle:
    """The tensor itself where it lies as asked already; else a copy."""
    return _itself(ctx) if _lies_as_asked(ctx) else fresh(ctx.value("self"))


def _lies_as_asked(ctx: NodeContext) -> bool:
    """Whether a tensor need not be moved for the node's result: its strides are the result's, or row-major without a result's."""
    arg = ctx.node.args.get("self")
    meta, out = ctx.metas.get(getattr(arg, "name", "")), ctx.out()
    if meta is None or meta.strides is None:
        return True
    if out is None or out.strides is None:
        return is_row_major(meta, ctx.state.symbols)
    sizes, *strides = (
        [evaluated(d, ctx.state.symbols) for d in dims] for dims in (meta.shape, meta.strides, out.strides)
    )
    return all(old == new for size, old, new in zip(sizes, *strides) if size > 1)


@converts("aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other", "aten.type_as.default")
def to(ctx: NodeContext) -> Handle:
    x = ctx.value("self")
    wanted = ctx.value("other").type.dtype if ctx.has("other") else ctx.get("dtype", x.type.dtype)
    if not isinstance(wanted, DType):
        raise ctx.unsupported(f"elements of type {wanted}")
    if wanted is x.type.dtype and not ctx.get("copy", False) and _lies_as_asked(ctx):
        return _itself(ctx)
    return fresh(converted(ctx, x, wanted))


def converted(ctx: NodeContext, x: Value, wanted: DType) -> Value:
    """x as elements of another type."""
    return cast(ctx.b, x, wanted)
