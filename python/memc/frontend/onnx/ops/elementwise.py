# SPDX-License-Identifier: Apache-2.0
"""Elementwise arithmetic, comparison, logic, casts, Where, Clip and Dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from memc.ir.core import Value
from memc.ir.types import DType

from ..context import Importer, Known, NodeContext, imports

_UNARY = {
    "Abs": "abs",
    "Neg": "neg",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Erf": "erf",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sign": "sign",
    "Not": "logical_not",
    "BitwiseNot": "bitwise_not",
    "IsNaN": "is_nan",
}
_BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}


def _unary(name: str) -> Importer:
    return lambda ctx: [ctx.b.op(name, [ctx.value(0)])]


def _binary(name: str) -> Importer:
    return lambda ctx: [ctx.b.op(name, two_operands(ctx))]


for _onnx_name, _name in _UNARY.items():
    imports(_onnx_name)(_unary(_name))
for _onnx_name, _name in _BINARY.items():
    imports(_onnx_name)(_binary(_name))


def two_operands(ctx: NodeContext) -> tuple[Value, Value]:
    """Inputs 0 and 1; before opset 7, `axis` says at which axis of the first the second one's shape stands."""
    a, b = ctx.value(0), ctx.value(1)
    axis = ctx.attr("axis") if ctx.opset < 7 and ctx.attr("broadcast", 0) else None
    if axis is not None and b.type.rank:
        trailing = a.type.rank - int(axis) % max(a.type.rank, 1) - b.type.rank
        b = ctx.b.op("reshape", [b], shape=b.type.shape + (1,) * max(trailing, 0))
    return a, b


def cast(ctx: NodeContext, value: Value, to: DType) -> Value:
    """`value` as element type `to`; no op if it has it."""
    return value if value.type.dtype is to else ctx.b.op("cast", [value], to=to)


def onnx_dtype(ctx: NodeContext, code: int | str) -> DType:
    """The element type of a TensorProto code (or its name, as in opset 5 and before)."""
    if isinstance(code, str):
        code = onnx.TensorProto.DataType.Value(code)
    try:
        return DType.from_numpy(onnx.helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        name = onnx.TensorProto.DataType.Name(code) if code in onnx.TensorProto.DataType.values() else str(code)
        raise ctx.unsupported(f"element type {name}") from None


@imports("IsInf")
def is_inf(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    negative, positive = ctx.attr("detect_negative", 1), ctx.attr("detect_positive", 1)
    if negative and positive:
        return [ctx.b.op("is_inf", [x])]
    if not negative and not positive:
        return [ctx.b.op("broadcast", [ctx.b.scalar(False, DType.BOOL)], shape=x.type.shape)]
    return [ctx.b.op("equal", [x, ctx.b.scalar(np.inf if positive else -np.inf, x.type.dtype)])]


@imports("Pow")
def power(ctx: NodeContext) -> Sequence[Known]:
    """The exponent may have another type than the base, whose type is the result's."""
    base, exponent = two_operands(ctx)
    dtype = base.type.dtype
    if dtype.is_integer and exponent.type.dtype.is_float:
        wide = ctx.b.op("pow", [cast(ctx, base, DType.F64), cast(ctx, exponent, DType.F64)])
        return [cast(ctx, wide, dtype)]
    return [ctx.b.op("pow", [base, cast(ctx, exponent, dtype)])]


@imports("Mod")
def mod(ctx: NodeContext) -> Sequence[Known]:
    return [ctx.b.op("fmod" if ctx.attr("fmod", 0) else "mod", [ctx.value(0), ctx.value(1)])]


@imports("BitShift")
def bit_shift(ctx: NodeContext) -> Sequence[Known]:
    direction = ctx.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ctx.unsupported(f"expected direction LEFT or RIGHT, got {direction}")
    return [ctx.b.op(f"shift_{direction.lower()}", [ctx.value(0), ctx.value(1)])]


def _variadic(name: str) -> Importer:
    def importer(ctx: NodeContext) -> Sequence[Known]:
        total = ctx.value(0)
        for i in range(1, len(ctx.inputs)):
            total = ctx.b.op(name, [total, ctx.value(i)])
        return [total]

    return importer


_sum = _variadic("add")
imports("Sum")(_sum)
imports("Max")(_variadic("max"))
imports("Min")(_variadic("min"))


@imports("Mean")
def mean(ctx: NodeContext) -> Sequence[Known]:
    (total,) = _sum(ctx)
    assert isinstance(total, Value)
    return [ctx.b.op("div", [total, ctx.b.scalar(len(ctx.inputs), total.type.dtype)])]


@imports("Where")
def where(ctx: NodeContext) -> Sequence[Known]:
    return [ctx.b.op("select", [ctx.value(0), ctx.value(1), ctx.value(2)])]


@imports("Cast")
def cast_node(ctx: NodeContext) -> Sequence[Known]:
    to = ctx.attr("to")
    if to is None:
        raise ctx.unsupported("attribute `to` is missing")
    return [cast(ctx, ctx.value(0), onnx_dtype(ctx, to))]


@imports("CastLike")
def cast_like(ctx: NodeContext) -> Sequence[Known]:
    return [cast(ctx, ctx.value(0), ctx.type(1).dtype)]


@imports("BitCast")
def bit_cast(ctx: NodeContext) -> Sequence[Known]:
    x, to = ctx.value(0), onnx_dtype(ctx, ctx.attr("to"))
    if to is x.type.dtype:
        return [x]
    if to is DType.BOOL:
        # Only the bytes 0 and 1 are bools.
        return [cast(ctx, x, to)]
    return [cast(ctx, x, to) if x.type.dtype is DType.BOOL else ctx.b.op("bitcast", [x], to=to)]


@imports("Clip")
def clip(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    if ctx.opset < 11:
        low, high = (_bound(ctx.attr(name), x.type.dtype) for name in ("min", "max"))
    else:
        if any(ctx.has(i) and ctx.known(i) is None for i in (1, 2)):
            for i, name in ((1, "max"), (2, "min")):
                x = ctx.b.op(name, [x, ctx.value(i)]) if ctx.has(i) else x
            return [x]
        low, high = (_bound(ctx.known(i), x.type.dtype) for i in (1, 2))
    if low is not None and high is not None:
        # Where the bounds cross, the upper one holds.
        return [ctx.b.op("clip", [x], min=min(low, high), max=high)]
    if low is not None:
        return [ctx.b.op("relu", [x]) if low == 0 else ctx.b.op("max", [x, ctx.b.scalar(low, x.type.dtype)])]
    return [ctx.b.op("min", [x, ctx.b.scalar(high, x.type.dtype)]) if high is not None else x]


def _bound(value: Any, dtype: DType) -> int | float | None:
    if value is None or np.size(value) != 1:
        return None
    scalar = np.asarray(value).reshape(()).item()
    return float(scalar) if dtype.is_float else int(scalar)
