# SPDX-License-Identifier: Apache-2.0
"""Rewrites that save an op outright. Each rule takes an op and answers with what takes its place, or None."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memc.ir.core import Op, Value
from memc.ir.op_queries import has
from memc.ir.ops.shared.common import ints_attr
from memc.ir.ops.shared.op_def import Trait
from memc.passes.rewrite.move_slices import (
    concat_of_parts,
    slice_of_concat,
    slice_of_pad,
    slice_of_reshape,
    slice_of_transpose,
    transpose_of_pad,
)

if TYPE_CHECKING:
    from memc.passes.rewrite.canonicalize import Context

Rule = Callable[["Context", Op], "Value | None"]


def simplify(context: Context, op: Op) -> Sequence[Value] | None:
    """The value in place of a one-result op, from the first rule that applies. It has the op's result type."""
    if len(op.results) != 1:
        return None
    for rule in _RULES.get(op.name, ()):
        found = rule(context, op)
        if found is not None:
            return [found]
    if has(op, Trait.ELEMENTWISE):
        found = _implicit_broadcast(context, op)
        return None if found is None else [found]
    return None


def _same_type(context: Context, op: Op) -> Value | None:
    """reshape, broadcast or cast to the type that the operand has."""
    return op.operands[0] if op.operands[0].type == op.result.type else None


def _copy(context: Context, op: Op) -> Value | None:
    return op.operands[0]


def _reshape_chain(context: Context, op: Op) -> Value | None:
    """A reshape of a reshape starts from the first one's operand."""
    inner = op.operands[0].op
    if inner is None or inner.name != "reshape":
        return None
    return context.builder.op("reshape", [inner.operands[0]], shape=op.result.type.shape)


def _transpose_identity(context: Context, op: Op) -> Value | None:
    return op.operands[0] if _perm(op) == tuple(range(op.result.type.rank)) else None


def _transpose_chain(context: Context, op: Op) -> Value | None:
    """A transpose of a transpose nobody else reads permutes once."""
    inner = op.operands[0].op
    if inner is None or inner.name != "transpose" or not context.used_once(inner.result):
        return None
    first = _perm(inner)
    return context.builder.op("transpose", [inner.operands[0]], perm=tuple(first[axis] for axis in _perm(op)))


def _transpose_as_reshape(context: Context, op: Op) -> Value | None:
    """A transpose that keeps the order of all axes longer than 1 moves nothing."""
    shape = op.operands[0].type.shape
    moved = [axis for axis in _perm(op) if shape[axis] != 1]
    if moved != sorted(moved):
        return None
    return context.builder.op("reshape", [op.operands[0]], shape=op.result.type.shape)


def _broadcast_as_reshape(context: Context, op: Op) -> Value | None:
    if op.operands[0].type.elements != op.result.type.elements:
        return None
    return context.builder.op("reshape", [op.operands[0]], shape=op.result.type.shape)


def _slice_of_everything(context: Context, op: Op) -> Value | None:
    steps = op.attrs["steps"]
    assert isinstance(steps, tuple)
    everything = op.operands[0].type == op.result.type and all(
        step == 1 or extent <= 1 for step, extent in zip(steps, op.result.type.shape)
    )
    return op.operands[0] if everything else None


def _concat_of_few(context: Context, op: Op) -> Value | None:
    """Operands of extent 0 on the axis add nothing; a concat of one operand is that operand."""
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    full = [v for v in op.operands if v.type.shape[axis]] or op.operands[:1]
    if len(full) == 1 and full[0].type == op.result.type:
        return full[0]
    if len(full) == len(op.operands):
        return None
    return context.builder.op("concat", full, op.plan, **op.attrs)


def _pad_of_nothing(context: Context, op: Op) -> Value | None:
    return op.operands[0] if op.operands[0].type == op.result.type and not any(_widths(op)) else None


def _reduce_of_nothing(context: Context, op: Op) -> Value | None:
    """Sum, product, max or min over axes of extent 1 only."""
    axes, source = op.attrs["axes"], op.operands[0].type
    assert isinstance(axes, tuple)
    if any(source.shape[int(axis)] != 1 for axis in axes) or source.dtype is not op.result.type.dtype:  # type: ignore[arg-type]
        return None
    return context.builder.op("reshape", [op.operands[0]], shape=op.result.type.shape)


def _neutral(value: float, sides: Sequence[int]) -> Rule:
    """x op value = x, with the constant on one of `sides` (operand indices)."""

    def rule(context: Context, op: Op) -> Value | None:
        for side in sides:
            other = op.operands[1 - side]
            if other.type != op.result.type or not _is_all(context, op.operands[side], value):
                continue
            return other
        return None

    return rule


def _is_all(context: Context, value: Value, wanted: float) -> bool:
    """Whether `value` is known to hold only `wanted`, of the same sign where that is a zero."""
    while value.op is not None and value.op.name in ("broadcast", "reshape"):
        value = value.op.operands[0]
    data = context.constant_of(value)
    if data is None or data.size == 0 or data.flat[0] != wanted:
        return False
    if wanted == 0 and value.type.dtype.is_float and bool(np.signbit(data).any()) != (math.copysign(1.0, wanted) < 0):
        return False
    return bool((data == wanted).all())


def _implicit_broadcast(context: Context, op: Op) -> Value | None:
    """Elementwise ops broadcast by themselves: an explicit broadcast that only they read is skipped."""
    operands = list(op.operands)
    for index, value in enumerate(operands):
        inner = value.op
        if inner is None or inner.name != "broadcast" or not context.used_once(value):
            continue
        source = inner.operands[0]
        others = [v.type.shape for i, v in enumerate(operands) if i != index]
        if others and np.broadcast_shapes(source.type.shape, *others) == op.result.type.shape:
            operands[index] = source
    if all(a is b for a, b in zip(operands, op.operands)):
        return None
    return context.builder.op(op.name, operands, op.plan, **op.attrs)


def _perm(op: Op) -> tuple[int, ...]:
    return ints_attr(op.attrs, "perm")


def _widths(op: Op) -> list[int]:
    low, high = op.attrs["low"], op.attrs["high"]
    assert isinstance(low, tuple) and isinstance(high, tuple)
    return [int(width) for width in (*low, *high)]  # type: ignore[arg-type]


_RULES: dict[str, tuple[Rule, ...]] = {
    "copy": (_copy,),
    "reshape": (_same_type, _reshape_chain),
    "broadcast": (_same_type, _broadcast_as_reshape),
    "cast": (_same_type,),
    "transpose": (_transpose_identity, _transpose_chain, _transpose_as_reshape, transpose_of_pad),
    "slice": (_slice_of_everything, slice_of_transpose, slice_of_reshape, slice_of_concat, slice_of_pad),
    "concat": (_concat_of_few, concat_of_parts),
    "pad": (_pad_of_nothing,),
    # x + 0 is x for every float only if the zero is negative: -0.0 + 0.0 = 0.0 loses a sign, which 1 / x, copysign-like
    # formulas and a look at the result all tell. x - 0 is x only if the zero is positive.
    "add": (_neutral(-0.0, (0, 1)),),
    "sub": (_neutral(0.0, (1,)),),
    "mul": (_neutral(1.0, (0, 1)),),
    "div": (_neutral(1.0, (1,)),),
    "pow": (_neutral(1.0, (1,)),),
    "reduce_sum": (_reduce_of_nothing,),
    "reduce_prod": (_reduce_of_nothing,),
    "reduce_max": (_reduce_of_nothing,),
    "reduce_min": (_reduce_of_nothing,),
}
