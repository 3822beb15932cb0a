# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes, running sums, and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.reduce import mean as mean_of
from memc.ir.ops.reduce import reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import NodeContext, converts
from .comparison import truth
from .elementwise import floating, number, square
from .views import reshaped


def summed(ctx: NodeContext, x: Value) -> Value:
    """x as what its sum is computed in: integers and booleans as i64, or as the node's dtype says."""
    wanted = ctx.get("dtype")
    if isinstance(wanted, DType):
        return cast(ctx.b, x, wanted)
    return x if x.type.dtype.is_float else cast(ctx.b, x, DType.I64)


@converts("aten.sum.default", "aten.sum.dim_IntList")
def sum_node(ctx: NodeContext) -> Value:
    x = summed(ctx, ctx.value("self"))
    return reduce(ctx.b, "sum", x, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


@converts("aten.mean.default", "aten.mean.dim")
def mean(ctx: NodeContext) -> Value:
    x = summed(ctx, ctx.value("self"))
    return mean_of(ctx.b, x, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


@converts("aten.prod.default", "aten.prod.dim_int")
def prod(ctx: NodeContext) -> Value:
    x = summed(ctx, ctx.value("self"))
    return reduce(ctx.b, "prod", x, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


@converts("aten.amax.default", "aten.max.default")
def amax(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    return reduce(ctx.b, "max", x, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


@converts("aten.amin.default", "aten.min.default")
def amin(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    return reduce(ctx.b, "min", x, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


@converts("aten.aminmax.default")
def aminmax(ctx: NodeContext) -> Sequence[Value]:
    x, keep = ctx.value("self"), bool(ctx.get("keepdim", False))
    axes = ctx.axes("dim", x.type.rank)
    return [reduce(ctx.b, kind, x, axes, keep) if axes else x for kind in ("min", "max")]


@converts("aten.nansum.default", "aten.nanmean.default")
def without_nan(ctx: NodeContext) -> Value:
    """Sums and means of elements that are numbers."""
    b, x = ctx.b, summed(ctx, ctx.value("self"))
    axes, keep = ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False))
    if not x.type.dtype.is_float:
        if "nanmean" in ctx.node.target:
            raise ctx.unsupported(f"means of {x.type.dtype.value}")
        return reduce(b, "sum", x, axes, keep)
    none = b.op("is_nan", [x])
    kept = b.op("select", [none, number(ctx, 0, x), x])
    if "nanmean" not in ctx.node.target:
        return reduce(b, "sum", kept, axes, keep)
    wide = widen(b, kept)
    count = reduce(b, "sum", cast(b, b.op("logical_not", [none]), wide.type.dtype), axes, keep)
    return cast(b, b.op("div", [reduce(b, "sum", wide, axes, keep), count]), x.type.dtype)


@converts("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_node(ctx: NodeContext) -> Value:
    x = truth(ctx, ctx.value("self"))
    if ctx.get("dim") == []:
        return x  # Unlike other reductions, over no axis.
    return reduce(ctx.b, "max", x, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


@converts("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_node(ctx: NodeContext) -> Value:
    x = truth(ctx, ctx.value("self"))
    if ctx.get("dim") == []:
        return x
    return reduce(ctx.b, "min", x, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


def _arg(ctx: NodeContext, x: Value, axis: int, name: str, keepdim: bool) -> Value:
    if not x.type.rank:
        return ctx.b.op(name, [reshaped(ctx.b, x, (1,))], axis=0, last=False)
    found = ctx.b.op(name, [x], axis=axis, last=False)
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.type.shape))
    return reshaped(ctx.b, found, shape) if keepdim else found


@converts("aten.argmax.default", "aten.argmin.default")
def argmax(ctx: NodeContext) -> Value:
    name = "arg_max" if "argmax" in ctx.node.target else "arg_min"
    x = ctx.value("self")
    x = cast(ctx.b, x, DType.I32) if x.type.dtype is DType.BOOL else x
    if not ctx.has("dim"):
        rank = x.type.rank if ctx.get("keepdim", False) else 0
        return reshaped(ctx.b, _arg(ctx, reshaped(ctx.b, x, (x.type.elements,)), 0, name, False), (1,) * rank)
    return _arg(ctx, x, ctx.axis(int(ctx.get("dim", 0)), x.type.rank), name, bool(ctx.get("keepdim", False)))


@converts("aten.max.dim", "aten.min.dim")
def extremum(ctx: NodeContext) -> Sequence[Value]:
    kind = "max" if ".max." in ctx.node.target else "min"
    x, keep = ctx.value("self"), bool(ctx.get("keepdim", False))
    axis = ctx.axis(int(ctx.get("dim")), x.type.rank)
    compared = cast(ctx.b, x, DType.I32) if x.type.dtype is DType.BOOL else x
    value = reduce(ctx.b, kind, x, [axis], keep) if x.type.rank else x
    return [value, _arg(ctx, compared, axis, f"arg_{kind}", keep)]


def variance_of(ctx: NodeContext, x: Value, axes: Sequence[int], correction: float, keep: bool) -> tuple[Value, Value]:
    """Variance and mean over axes, the sum of squares divided by what is left of their number."""
    b, count = ctx.b, math.prod(x.type.shape[a] for a in axes)
    wide = widen(b, x)
    center = mean_of(b, wide, axes, True)
    total = reduce(b, "sum", square(ctx, b.op("sub", [wide, center])), axes, keep)
    left = max(count - correction, 0)
    factor = number(ctx, 1 / left if left else math.nan, total)
    found = b.op("mul", [total, factor])
    center = center if keep else reshaped(b, center, found.type.shape)
    return cast(b, found, x.type.dtype), cast(b, center, x.type.dtype)


def _variance(ctx: NodeContext) -> tuple[Value, Value]:
    x = ctx.value("self")
    correction = ctx.get("correction", 1)
    if ctx.get("unbiased") is False:
        correction = 0
    return variance_of(ctx, x, ctx.axes("dim", x.type.rank), float(correction), bool(ctx.get("keepdim", False)))


@converts("aten.var.correction", "aten.var.dim", "aten.var.default")
def var(ctx: NodeContext) -> Value:
    return _variance(ctx)[0]


@converts("aten.std.correction", "aten.std.dim", "aten.std.default")
def std(ctx: NodeContext) -> Value:
    return ctx.b.op("sqrt", [_variance(ctx)[0]])


@converts("aten.var_mean.correction", "aten.var_mean.dim", "aten.var_mean.default")
def var_mean(ctx: NodeContext) -> Sequence[Value]:
    return list(_variance(ctx))


@converts("aten.std_mean.correction", "aten.std_mean.dim", "aten.std_mean.default")
def std_mean(ctx: NodeContext) -> Sequence[Value]:
    variance, center = _variance(ctx)
    return [ctx.b.op("sqrt", [variance]), center]


def norm_of(ctx: NodeContext, x: Value, order: float, axes: Sequence[int], keep: bool) -> Value:
    """The p-norm over axes."""
    b, wide = ctx.b, widen(ctx.b, x)
    if order == 2:
        total = reduce(b, "sum", square(ctx, wide), axes, keep)
        if ctx.trainable:  # The root of 0 has no derivative, for which PyTorch takes 0.
            none = b.op("equal", [total, number(ctx, 0, total)])
            root = b.op("sqrt", [b.op("select", [none, number(ctx, 1, total), total])])
            found = b.op("select", [none, number(ctx, 0, total), root])
        else:
            found = b.op("sqrt", [total])
    elif order == 1:
        found = reduce(b, "sum", b.op("abs", [wide]), axes, keep)
    elif math.isinf(order):
        found = reduce(b, "max" if order > 0 else "min", b.op("abs", [wide]), axes, keep)
    elif order == 0:
        found = reduce(b, "sum", cast(b, truth(ctx, wide), wide.type.dtype), axes, keep)
    else:
        powers = b.op("pow", [b.op("abs", [wide]), number(ctx, order, wide)])
        total = reduce(b, "sum", powers, axes, keep)
        found = b.op("pow", [total, number(ctx, 1 / order, total)])
    return cast(b, found, x.type.dtype)


@converts("aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim", "aten.norm.Scalar")
def vector_norm(ctx: NodeContext) -> Value:
    x = ctx.value("self")
    wanted = ctx.get("dtype")
    x = cast(ctx.b, x, wanted) if isinstance(wanted, DType) else x
    order = float(ctx.get("ord", ctx.get("p", 2)))
    return norm_of(ctx, x, order, ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False)))


@converts("aten.logsumexp.default")
def logsumexp(ctx: NodeContext) -> Value:
    b, given = ctx.b, floating(ctx)
    x = widen(b, given)
    axes, keep = ctx.axes("dim", x.type.rank), bool(ctx.get("keepdim", False))
    top = b.op("hold", [reduce(b, "max", x, axes, True)])
    finite = b.op("less", [b.op("abs", [top]), number(ctx, math.inf, x)])
    top = b.op("select", [finite, top, number(ctx, 0, x)])
    total = reduce(b, "sum", b.op("exp", [b.op("sub", [x, top])]), axes, True)
    found = b.op("add", [b.op("log", [total]), top])
    shape = found.type.shape if keep else tuple(n for a, n in enumerate(x.type.shape) if a not in axes)
    return cast(b, reshaped(b, found, shape), given.type.dtype)


@converts("aten.cumsum.default", "aten.cumprod.default")
def cumulative(ctx: NodeContext) -> Value:
    b, name = ctx.b, ctx.node.target.split(".")[1].rstrip("_")
    x = summed(ctx, ctx.value("self"))
    wide = widen(b, x)
    if not x.type.rank:
        return x
    axis = ctx.axis(int(ctx.get("dim")), x.type.rank)
    return cast(b, b.op(name, [wide], axis=axis, exclusive=False, reverse=False), x.type.dtype)


@converts("aten.diff.default")
def diff(ctx: NodeContext) -> Value:
    from .views import cut

    b, x = ctx.b, ctx.value("self")
    axis = ctx.axis(int(ctx.get("dim", -1)), x.type.rank)
    parts = [*(ctx.value(n) for n in ("prepend",) if ctx.has(n)), x, *(ctx.value(n) for n in ("append",) if ctx.has(n))]
    x = b.op("concat", parts, axis=axis) if len(parts) > 1 else x
    for _ in range(int(ctx.get("n", 1))):
        extent = x.type.shape[axis]
        later, earlier = cut(b, x, axis, (1, extent, 1)), cut(b, x, axis, (0, extent - 1, 1))
        x = b.op("logical_xor" if x.type.dtype is DType.BOOL else "sub", [later, earlier])
    return x


@converts("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(ctx: NodeContext) -> Value:
    x = cast(ctx.b, truth(ctx, ctx.value("self")), DType.I64)
    return reduce(ctx.b, "sum", x, ctx.axes("dim", x.type.rank), False)


@converts("aten.histc.default")
def histc(ctx: NodeContext) -> Value:
    """How many elements fall between evenly spaced edges, the last of which belongs to the last cell."""
    b, x = ctx.b, ctx.value("self")
    bins, low, high = int(ctx.get("bins", 100)), float(ctx.get("min", 0)), float(ctx.get("max", 0))
    if low >= high:
        raise ctx.unsupported("limits that depend on data; give min and max")
    flat = cast(b, reshaped(b, x, (x.type.elements, 1)), DType.F32)
    scaled = b.op("mul", [b.op("sub", [flat, number(ctx, low, flat)]), number(ctx, bins / (high - low), flat)])
    cell = b.op("min", [b.op("floor", [scaled]), number(ctx, bins - 1, flat)])
    inside = b.op(
        "logical_and",
        [b.op("greater_equal", [flat, number(ctx, low, flat)]), b.op("less_equal", [flat, number(ctx, high, flat)])],
    )
    line = b.op("iota", [], shape=(1, bins), axis=1, dtype=DType.F32)
    hits = b.op("logical_and", [b.op("equal", [cell, line]), inside])
    found = b.op("reduce_sum", [cast(b, hits, DType.F32)], axes=(0,), keepdims=False)
    return cast(b, found, x.type.dtype)
