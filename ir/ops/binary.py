# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of two operands of one element type, with numpy broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import (
    broadcast_shapes,
    compute_dtype,
    count,
    elementwise,
    elementwise_in_place,
    same_dtype,
    widen,
    wrapping,
)
from .shared.derivatives import keep_where, scaled, sum_to
from .shared.op_def import Attrs, Builder, Expr, GradientFn, OpDef, Trait, flat, register, result_elements
from .unary import BOOL, INTEGER, NUMERIC, accepts

ANY = "any"
ScalarFn = Callable[[Builder, Expr, Expr, DType], Expr]
NumpyFn = Callable[[Any, Any], Any]


def _mod(b: Builder, x: Expr, y: Expr, dtype: DType) -> Expr:
    if not dtype.is_float:
        return b.floormod(x, y)
    zero = b.const(0, dtype)
    rest = b.binary("fmod", x, y)
    wrong_sign = b.logical_or(b.logical_and(rest < zero, y > zero), b.logical_and(rest > zero, y < zero))
    return b.select(wrong_sign, rest + y, rest)


def _pow_numpy(x: Any, y: Any) -> Any:
    if not np.issubdtype(x.dtype, np.signedinteger):
        return np.power(x, y)
    # Truncated, a negative power is 0 but for the bases 1 and -1.
    units = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, units, np.power(x, np.maximum(y, 0))).astype(x.dtype)


def _equal(b: Builder, x: Expr, y: Expr, dtype: DType) -> Expr:
    if dtype is DType.BOOL:
        return b.equal(b.cast(x, DType.I8), b.cast(y, DType.I8))
    return b.equal(x, y)


def _not_equal(b: Builder, x: Expr, y: Expr, dtype: DType) -> Expr:
    if dtype is DType.BOOL:
        return b.not_equal(b.cast(x, DType.I8), b.cast(y, DType.I8))
    return b.not_equal(x, y)


def _named(name: str) -> ScalarFn:
    """The backend's function of that name."""
    return lambda b, x, y, dtype: b.binary(name, x, y)


def _shift_left(b: Builder, x: Expr, y: Expr, dtype: DType) -> Expr:
    bits = b.const(8 * dtype.itemsize, dtype)
    return b.select(y < bits, b.binary("shift_left", x, y), b.const(0, dtype))


def _shift_right(b: Builder, x: Expr, y: Expr, dtype: DType) -> Expr:
    bits = b.const(8 * dtype.itemsize, dtype)
    emptied = b.const(0, dtype)
    if dtype.is_signed:
        emptied = b.select(x < emptied, b.const(-1, dtype), emptied)
    return b.select(y < bits, b.binary("shift_right", x, y), emptied)


def _divide_numpy(x: Any, y: Any) -> Any:
    if np.issubdtype(x.dtype, np.floating):
        return x / y
    # Truncating, where numpy's own integer division rounds down; by zero gives 0.
    quotient = np.floor_divide(x, y)
    inexact = (x - quotient * y != 0) & ((x < 0) != (y < 0)) & (y != 0)
    return quotient + inexact.astype(x.dtype)


Slopes = Callable[[IRBuilder, Op, Value], Sequence[Value]]
"""Both gradients, before broadcasting is undone, from the one in the result."""


def _rule(slopes: Slopes) -> GradientFn:
    def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        (g,) = grads
        if g is None or not op.result.type.dtype.is_float:
            return [None, None]
        return [sum_to(b, found, v.type) for found, v in zip(slopes(b, op, g), op.operands)]

    return gradient


def _mul_slopes(b: IRBuilder, op: Op, g: Value) -> Sequence[Value]:
    x, y = op.operands
    return [b.op("mul", [g, y]), b.op("mul", [g, x])]


def _div_slopes(b: IRBuilder, op: Op, g: Value) -> Sequence[Value]:
    by = b.op("div", [g, op.operands[1]])
    return [by, b.op("neg", [b.op("mul", [by, op.result])])]


def _pow_slopes(b: IRBuilder, op: Op, g: Value) -> Sequence[Value]:
    x, y = op.operands
    less = b.op("pow", [x, b.op("sub", [y, b.scalar(1, y.type.dtype)])])
    # Where the base is not positive, the power is no differentiable function of the exponent, or 0 throughout.
    positive = b.op("greater", [x, b.scalar(0, x.type.dtype)])
    log = b.op("log", [b.op("select", [positive, x, b.scalar(1, x.type.dtype)])])
    return [b.op("mul", [g, b.op("mul", [y, less])]), b.op("mul", [g, b.op("mul", [op.result, log])])]


def _extremum_slopes(b: IRBuilder, op: Op, g: Value, wins: str) -> Sequence[Value]:
    """The operand that `wins` (greater_equal or less_equal) gets all; equal ones half each.

    The operands are compared with each other: recomputed ones may be rounded apart from the result, and then neither equals it.
    """
    x, y = op.operands
    share = b.op("select", [b.op("equal", [x, y]), scaled(b, g, 0.5), g])
    return [keep_where(b, b.op(wins, pair), share) for pair in ((x, y), (y, x))]


def _mod_slopes(b: IRBuilder, op: Op, g: Value, rounding: str) -> Sequence[Value]:
    quotient = b.op(rounding, [b.op("div", op.operands)])
    return [g, b.op("neg", [b.op("mul", [g, quotient])])]


_GRADIENTS: dict[str, GradientFn] = {
    "add": _rule(lambda b, op, g: [g, g]),
    "sub": _rule(lambda b, op, g: [g, b.op("neg", [g])]),
    "mul": _rule(_mul_slopes),
    "div": _rule(_div_slopes),
    "pow": _rule(_pow_slopes),
    "min": _rule(lambda b, op, g: _extremum_slopes(b, op, g, "less_equal")),
    "max": _rule(lambda b, op, g: _extremum_slopes(b, op, g, "greater_equal")),
    "mod": _rule(lambda b, op, g: _mod_slopes(b, op, g, "floor")),
    "fmod": _rule(lambda b, op, g: _mod_slopes(b, op, g, "trunc")),
}


def _define(name: str, kind: str, numpy_fn: NumpyFn, scalar: ScalarFn, summary: str, spec: str | None) -> None:
    predicate = name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

    def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
        count(operands, 2)
        dtype = same_dtype(operands)
        if kind != ANY and not accepts(kind, dtype):
            raise OpError(f"expected {kind} as operands, got {operands[0]} and {operands[1]}")
        shape = broadcast_shapes(operands[0].shape, operands[1].shape)
        return [TensorType(DType.BOOL if predicate else dtype, shape)]

    def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(numpy_fn(widen(inputs[0]), widen(inputs[1]))).astype(results[0].dtype.numpy)]

    def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
        return scalar(b, x[0], x[1], compute_dtype(op.operands[0].type.dtype))

    traits = {Trait.ELEMENTWISE, Trait.CHEAP}
    if name in _COMMUTATIVE:
        traits.add(Trait.COMMUTATIVE)
    register(
        OpDef(
            name=name,
            doc=f"{summary}\n\nTwo operands of one element type"
            + ("" if kind == ANY else f", {kind}")
            + ", broadcast numpy-style"
            + ("; the result is bool." if predicate else "; f16 and bf16 are computed in f32."),
            spec=f"https://onnx.ai/onnx/operators/onnx__{spec}.html" if spec else None,
            infer=infer,
            evaluate=evaluate,
            gradient=_GRADIENTS.get(name, flat),
            in_place=elementwise_in_place,
            view=None,
            slices=None,
            flops=result_elements,
            lower=elementwise(element),
            library=(),
            traits=frozenset(traits),
        )
    )


# Not min and max: with two different NaNs, or zeros of both signs, the order may show in the bits.
_COMMUTATIVE = frozenset(
    {"add", "mul", "equal", "not_equal", "logical_and", "logical_or", "logical_xor"}
    | {"bitwise_and", "bitwise_or", "bitwise_xor"}
)

_TABLE: list[tuple[str, str, NumpyFn, ScalarFn, str, str | None]] = [
    (
        "add",
        NUMERIC,
        np.add,
        lambda b, x, y, t: wrapping(b, t, functools.partial(b.binary, "add"), x, y),
        "x + y; integers wrap.",
        "Add",
    ),
    (
        "sub",
        NUMERIC,
        np.subtract,
        lambda b, x, y, t: wrapping(b, t, functools.partial(b.binary, "sub"), x, y),
        "x - y; integers wrap.",
        "Sub",
    ),
    (
        "mul",
        NUMERIC,
        np.multiply,
        lambda b, x, y, t: wrapping(b, t, functools.partial(b.binary, "mul"), x, y),
        "x y; integers wrap.",
        "Mul",
    ),
    (
        "div",
        NUMERIC,
        _divide_numpy,
        lambda b, x, y, t: b.divide(x, y),
        "x / y; integers truncate towards 0, and x / 0 is 0.",
        "Div",
    ),
    (
        "pow",
        NUMERIC,
        _pow_numpy,
        _named("pow"),
        "x to the power of y; integers wrap, and their negative powers are truncated (0 to the power of -1 is 0).",
        "Pow",
    ),
    ("min", NUMERIC, np.minimum, lambda b, x, y, dtype: b.minimum(x, y), "The smaller; NaN if either is NaN.", "Min"),
    ("max", NUMERIC, np.maximum, lambda b, x, y, dtype: b.maximum(x, y), "The larger; NaN if either is NaN.", "Max"),
    ("mod", NUMERIC, np.mod, _mod, "Remainder with the sign of the divisor; for integers, 0 by 0.", "Mod"),
    (
        "fmod",
        NUMERIC,
        np.fmod,
        lambda b, x, y, t: b.binary("fmod", x, y),
        "Remainder with the sign of the dividend; for integers, 0 by 0.",
        "Mod",
    ),
    ("equal", ANY, np.equal, _equal, "x = y.", "Equal"),
    ("not_equal", ANY, np.not_equal, _not_equal, "x differs from y.", None),
    ("less", NUMERIC, np.less, lambda b, x, y, t: x < y, "x < y.", "Less"),
    ("less_equal", NUMERIC, np.less_equal, lambda b, x, y, t: x <= y, "x <= y.", "LessOrEqual"),
    ("greater", NUMERIC, np.greater, lambda b, x, y, t: x > y, "x > y.", "Greater"),
    ("greater_equal", NUMERIC, np.greater_equal, lambda b, x, y, t: x >= y, "x >= y.", "GreaterOrEqual"),
    ("logical_and", BOOL, np.logical_and, lambda b, x, y, t: b.logical_and(x, y), "Both.", "And"),
    ("logical_or", BOOL, np.logical_or, lambda b, x, y, t: b.logical_or(x, y), "At least one.", "Or"),
    ("logical_xor", BOOL, np.logical_xor, _not_equal, "Exactly one.", "Xor"),
    ("bitwise_and", INTEGER, np.bitwise_and, _named("bitwise_and"), "Bitwise and.", "BitwiseAnd"),
    ("bitwise_or", INTEGER, np.bitwise_or, _named("bitwise_or"), "Bitwise or.", "BitwiseOr"),
    ("bitwise_xor", INTEGER, np.bitwise_xor, _named("bitwise_xor"), "Bitwise exclusive or.", "BitwiseXor"),
    ("shift_left", INTEGER, np.left_shift, _shift_left, "x shifted left by 0 <= y bits.", "BitShift"),
    (
        "shift_right",
        INTEGER,
        np.right_shift,
        _shift_right,
        "x shifted right by 0 <= y bits, copies of the sign coming in for signed types.",
        "BitShift",
    ),
]

for _row in _TABLE:
    _define(*_row)
