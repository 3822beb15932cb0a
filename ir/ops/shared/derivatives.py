# SPDX-License-Identifier: Apache-2.0
"""What gradient rules write with. Gradients have the type of what they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from ...build import IRBuilder
from ...core import Attr, OpPlan, Value
from ...types import DType, TensorType
from .casts import HALF, cast, widen


def again(b: IRBuilder, name: str, operands: Sequence[Value], time: int, **attrs: Attr) -> Value:
    """A cheap op for one reader only, which it is fused into: recomputed for each `time`, it is never kept."""
    return b.op(name, operands, OpPlan(recompute=(time,)), **attrs)


def widen_again(b: IRBuilder, x: Value, time: int) -> Value:
    """`widen` for one reader only."""
    return again(b, "cast", [x], time, to=DType.F32) if x.type.dtype in HALF else x


def scaled(b: IRBuilder, x: Value, factor: float) -> Value:
    """x times a number."""
    return b.op("mul", [x, b.scalar(factor, x.type.dtype)])


def one_minus(b: IRBuilder, x: Value) -> Value:
    """1 - x."""
    return b.op("sub", [b.scalar(1, x.type.dtype), x])


def square(b: IRBuilder, x: Value) -> Value:
    """x times x."""
    return b.op("mul", [x, x])


def zeros(b: IRBuilder, type: TensorType) -> Value:
    """Zeros of a type."""
    return b.op("broadcast", [b.scalar(0, type.dtype)], shape=type.shape)


def keep_where(b: IRBuilder, condition: Value, x: Value) -> Value:
    """x where the condition holds, else 0."""
    return b.op("select", [condition, x, b.scalar(0, x.type.dtype)])


def held_distance(b: IRBuilder, x: Value, y: Value) -> Value:
    """x - y, and 0 where they are equal, infinite or not: computed once.

    A rule that looks for the elements of x that made the extremum y takes those of the extreme distance. That is 0 unless x was
    recomputed and rounded apart, when no element might equal y; and as the distances are held, one of them is the extreme.
    """
    same = b.op("equal", [x, y])
    return b.op("hold", [b.op("select", [same, b.scalar(0, x.type.dtype), b.op("sub", [x, y])])])


def within(b: IRBuilder, x: Value, low: float, high: float) -> Value:
    """Whether low <= x <= high, for each element."""
    above = b.op("greater_equal", [x, b.scalar(low, x.type.dtype)])
    return b.op("logical_and", [above, b.op("less_equal", [x, b.scalar(high, x.type.dtype)])])


def sum_to(b: IRBuilder, grad: Value, like: TensorType) -> Value:
    """The gradient in an operand of type `like` that was broadcast to the shape of `grad`: sums over what was repeated."""
    shape, lead = grad.type.shape, grad.type.rank - like.rank
    repeated = [d for d in range(grad.type.rank) if d < lead or (like.shape[d - lead] == 1 and shape[d] != 1)]
    total = grad
    if repeated:
        total = b.op("reduce_sum", [widen(b, grad)], axes=tuple(repeated), keepdims=True)
    if total.type.shape != like.shape:
        total = b.op("reshape", [total], shape=like.shape)
    return cast(b, total, like.dtype)


def spread(b: IRBuilder, grad: Value, source: TensorType, axes: Sequence[int]) -> Value:
    """A reduction's gradient repeated along the reduced `axes` of its operand."""
    kept = tuple(1 if d in axes else n for d, n in enumerate(source.shape))
    if grad.type.shape != kept:
        grad = b.op("reshape", [grad], shape=kept)
    return b.op("broadcast", [grad], shape=source.shape) if kept != source.shape else grad
