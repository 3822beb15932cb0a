# SPDX-License-Identifier: Apache-2.0
"""ReduceSum and its kin, ArgMax, ArgMin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.ops.reduce import mean, reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

Reduction = Callable[[IRBuilder, Value, Sequence[int], bool], Value]
"""Reduces a value over axes (none: elementwise only), keeping them as extent 1 or not."""


def resolve_axis(ctx: NodeContext, axis: int, rank: int) -> int:
    """A possibly negative axis as one in [0, rank)."""
    if not -rank <= axis < rank:
        raise ctx.unsupported(f"expected an axis from {-rank} to {rank - 1}, got {axis}")
    return axis % rank


def wants(ctx: NodeContext, output: int) -> bool:
    """Whether the node's output has a name, so that something may read it."""
    return output < len(ctx.node.output) and bool(ctx.node.output[output])


def reduction_axes(ctx: NodeContext, input_since: int) -> tuple[int, ...]:
    """The axes to reduce: an attribute before opset `input_since`, input 1 from then on; missing or empty means all,
    or none with noop_with_empty_axes."""
    rank = ctx.type(0).rank
    if ctx.opset < input_since:
        axes = ctx.attr("axes", ())
    else:
        axes = ctx.ints(1) if ctx.has(1) else ()
    if not axes:
        return () if ctx.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({resolve_axis(ctx, int(a), rank) for a in axes}))


def _plain(kind: str) -> Reduction:
    return lambda b, x, axes, keepdims: reduce(b, kind, x, axes, keepdims)


def _real(b: IRBuilder, x: Value) -> Value:
    """Half precision as f32 and integers as f64, for roots and logarithms."""
    return widen(b, x) if x.type.dtype.is_float else cast(b, x, DType.F64)


def _l1(b: IRBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return reduce(b, "sum", b.op("abs", [x]), axes, keepdims)


def _sum_square(b: IRBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    wide = widen(b, x)
    return cast(b, reduce(b, "sum", b.op("mul", [wide, wide]), axes, keepdims), x.type.dtype)


def _l2(b: IRBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return cast(b, b.op("sqrt", [_sum_square(b, _real(b, x), axes, keepdims)]), x.type.dtype)


def _log_sum(b: IRBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return cast(b, b.op("log", [reduce(b, "sum", _real(b, x), axes, keepdims)]), x.type.dtype)


def _log_sum_exp(b: IRBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    if not axes:
        return x
    wide = _real(b, x)
    dtype = wide.type.dtype
    # Shift by the maximum against overflow, but not by an infinite one: inf - inf is nan.
    highest = reduce(b, "max", wide, axes, True)
    infinite = b.op("equal", [b.op("abs", [highest]), b.scalar(math.inf, dtype)])
    shift = b.op("select", [infinite, b.scalar(0, dtype), highest])
    total = reduce(b, "sum", b.op("exp", [b.op("sub", [wide, shift])]), axes, True)
    found = cast(b, b.op("add", [b.op("log", [total]), shift]), x.type.dtype)
    if keepdims:
        return found
    return b.op("reshape", [found], shape=tuple(n for d, n in enumerate(x.type.shape) if d not in axes))


def _import(ctx: NodeContext, reduction: Reduction, input_since: int) -> Sequence[Known]:
    axes = reduction_axes(ctx, input_since)
    return [reduction(ctx.b, ctx.value(0), axes, bool(ctx.attr("keepdims", 1)))]


def _register(op_type: str, reduction: Reduction, input_since: int = 18) -> None:
    imports(op_type)(lambda ctx: _import(ctx, reduction, input_since))


_register("ReduceSum", _plain("sum"), 13)
_register("ReduceProd", _plain("prod"))
_register("ReduceMax", _plain("max"))
_register("ReduceMin", _plain("min"))
_register("ReduceMean", mean)
_register("ReduceL1", _l1)
_register("ReduceL2", _l2)
_register("ReduceSumSquare", _sum_square)
_register("ReduceLogSum", _log_sum)
_register("ReduceLogSumExp", _log_sum_exp)


def _arg(ctx: NodeContext, name: str) -> Sequence[Known]:
    x = ctx.value(0)
    axis = resolve_axis(ctx, ctx.attr("axis", 0), x.type.rank)
    found = ctx.b.op(name, [x], axis=axis, last=bool(ctx.attr("select_last_index", 0)))
    if ctx.attr("keepdims", 1):
        found = ctx.b.op("reshape", [found], shape=tuple(1 if d == axis else n for d, n in enumerate(x.type.shape)))
    return [found]


@imports("ArgMax")
def arg_max(ctx: NodeContext) -> Sequence[Known]:
    return _arg(ctx, "arg_max")


@imports("ArgMin")
def arg_min(ctx: NodeContext) -> Sequence[Known]:
    return _arg(ctx, "arg_min")
