# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of one operand: arithmetic, exponentials, trigonometry, rounding, logic and float tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import compute_dtype, count, elementwise, elementwise_in_place, widen, wrapping
from .shared.derivatives import one_minus, scaled, square
from .shared.op_def import Attrs, Builder, Expr, GradientFn, OpDef, Trait, flat, register, result_elements

NumpyFn = Callable[[Any], Any]
ScalarFn = Callable[[Builder, Expr, DType], Expr]
"""The lowering of one element; the type is the one it is computed in (f32 for f16 and bf16)."""

FLOAT, NUMERIC, INTEGER, BOOL = "a float", "a number", "an integer", "a bool"


def accepts(kind: str, dtype: DType) -> bool:
    """Whether an element type is of the kind FLOAT, NUMERIC, INTEGER or BOOL."""
    return {
        FLOAT: dtype.is_float,
        NUMERIC: dtype is not DType.BOOL,
        INTEGER: dtype.is_integer,
        BOOL: dtype is DType.BOOL,
    }[kind]


def intrinsic(name: str) -> ScalarFn:
    """The backend's function of that name."""
    return lambda b, x, dtype: b.unary(name, x)


def _neg(b: Builder, x: Expr, dtype: DType) -> Expr:
    if dtype.is_unsigned and dtype is not DType.U32:
        # Simplifiers take a difference of unsigned numbers to be at least 0, and fold 0 - x to 0.
        return b.unary("bitwise_not", x) + b.const(1, dtype)
    # A multiplication keeps the sign of zero; 0 - x would not.
    return x * b.const(-1, dtype) if dtype.is_float else wrapping(b, dtype, lambda v: 0 - v, x)


def _abs(b: Builder, x: Expr, dtype: DType) -> Expr:
    return x if dtype.is_unsigned else wrapping(b, dtype, lambda v: b.unary("abs", v), x)


def _reciprocal(b: Builder, x: Expr, dtype: DType) -> Expr:
    return b.divide(b.const(1, dtype), x)


def _sign(b: Builder, x: Expr, dtype: DType) -> Expr:
    zero, one = b.const(0, dtype), b.const(1, dtype)
    if dtype.is_unsigned:
        return b.select(x > zero, one, zero)
    # NaN is neither above nor below zero and comes back as it is.
    return b.select(x > zero, one, b.select(x < zero, b.const(-1, dtype), x))


def _logical_not(b: Builder, x: Expr, dtype: DType) -> Expr:
    return b.logical_not(x)


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64)), np.float64)


def _is_nan(b: Builder, x: Expr, dtype: DType) -> Expr:
    return b.unary("isnan", x)


def _is_inf(b: Builder, x: Expr, dtype: DType) -> Expr:
    return b.unary("isinf", x)


Slope = Callable[[IRBuilder, Value, Value, Value], Value]
"""The gradient in x from b, x, the result y and the gradient in y."""


def _rule(slope: Slope) -> GradientFn:
    def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        (g,) = grads
        return [None if g is None else slope(b, op.operands[0], op.result, g)]

    return gradient


def _over_root(b: IRBuilder, g: Value, radicand: Value) -> Value:
    """g / sqrt(radicand)."""
    return b.op("mul", [g, b.op("rsqrt", [radicand])])


def _plus(b: IRBuilder, x: Value, number: float) -> Value:
    return b.op("add", [x, b.scalar(number, x.type.dtype)])


def _erf_slope(b: IRBuilder, x: Value, y: Value, g: Value) -> Value:
    bell = b.op("exp", [b.op("neg", [square(b, x)])])
    return b.op("mul", [g, scaled(b, bell, 2 / math.sqrt(math.pi))])


def _acos_slope(b: IRBuilder, x: Value, y: Value, g: Value) -> Value:
    return b.op("neg", [_over_root(b, g, one_minus(b, square(b, x)))])


# Of results rather than operands where either would do: then the operand need not be kept.
_GRADIENTS: dict[str, GradientFn] = {
    name: _rule(slope)
    for name, slope in {
        "neg": lambda b, x, y, g: b.op("neg", [g]),
        "abs": lambda b, x, y, g: b.op("mul", [g, b.op("sign", [x])]),
        "exp": lambda b, x, y, g: b.op("mul", [g, y]),
        "log": lambda b, x, y, g: b.op("div", [g, x]),
        "sqrt": lambda b, x, y, g: b.op("div", [scaled(b, g, 0.5), y]),
        "rsqrt": lambda b, x, y, g: b.op("mul", [scaled(b, g, -0.5), b.op("mul", [y, square(b, y)])]),
        "reciprocal": lambda b, x, y, g: b.op("neg", [b.op("mul", [g, square(b, y)])]),
        "sin": lambda b, x, y, g: b.op("mul", [g, b.op("cos", [x])]),
        "cos": lambda b, x, y, g: b.op("neg", [b.op("mul", [g, b.op("sin", [x])])]),
        "tan": lambda b, x, y, g: b.op("mul", [g, _plus(b, square(b, y), 1)]),
        "asin": lambda b, x, y, g: _over_root(b, g, one_minus(b, square(b, x))),
        "acos": _acos_slope,
        "atan": lambda b, x, y, g: b.op("div", [g, _plus(b, square(b, x), 1)]),
        "sinh": lambda b, x, y, g: b.op("mul", [g, b.op("cosh", [x])]),
        "cosh": lambda b, x, y, g: b.op("mul", [g, b.op("sinh", [x])]),
        "tanh": lambda b, x, y, g: b.op("mul", [g, one_minus(b, square(b, y))]),
        "asinh": lambda b, x, y, g: _over_root(b, g, _plus(b, square(b, x), 1)),
        "acosh": lambda b, x, y, g: _over_root(b, g, _plus(b, square(b, x), -1)),
        "atanh": lambda b, x, y, g: b.op("div", [g, one_minus(b, square(b, x))]),
        "erf": _erf_slope,
    }.items()
}


def _define(name: str, kind: str, numpy_fn: NumpyFn, scalar: ScalarFn, summary: str, spec: str | None) -> None:
    predicate = name in ("is_nan", "is_inf")

    def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
        count(operands, 1)
        if not accepts(kind, operands[0].dtype):
            raise OpError(f"expected {kind} operand, got {operands[0]}")
        return [operands[0].with_dtype(DType.BOOL) if predicate else operands[0]]

    def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(numpy_fn(widen(inputs[0]))).astype(results[0].dtype.numpy)]

    def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
        return scalar(b, x[0], compute_dtype(op.operands[0].type.dtype))

    register(
        OpDef(
            name=name,
            doc=f"{summary}\n\nOne operand, {kind}; the result has its shape"
            + (" and type bool." if predicate else " and type; f16 and bf16 are computed in f32."),
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
            traits=frozenset({Trait.ELEMENTWISE, Trait.CHEAP}),
        )
    )


_TABLE: list[tuple[str, str, NumpyFn, ScalarFn, str, str | None]] = [
    ("neg", NUMERIC, np.negative, _neg, "-x; integers wrap.", "Neg"),
    ("abs", NUMERIC, np.abs, _abs, "|x|.", "Abs"),
    ("exp", FLOAT, np.exp, intrinsic("exp"), "e to the power of x.", "Exp"),
    ("log", FLOAT, np.log, intrinsic("log"), "Natural logarithm.", "Log"),
    ("sqrt", FLOAT, np.sqrt, intrinsic("sqrt"), "Square root.", "Sqrt"),
    ("rsqrt", FLOAT, lambda x: 1 / np.sqrt(x), intrinsic("rsqrt"), "1 / sqrt(x).", None),
    ("reciprocal", FLOAT, lambda x: 1 / x, _reciprocal, "1 / x.", "Reciprocal"),
    ("sin", FLOAT, np.sin, intrinsic("sin"), "Sine of x radians.", "Sin"),
    ("cos", FLOAT, np.cos, intrinsic("cos"), "Cosine of x radians.", "Cos"),
    ("tan", FLOAT, np.tan, intrinsic("tan"), "Tangent of x radians.", "Tan"),
    ("asin", FLOAT, np.arcsin, intrinsic("asin"), "Inverse sine.", "Asin"),
    ("acos", FLOAT, np.arccos, intrinsic("acos"), "Inverse cosine.", "Acos"),
    ("atan", FLOAT, np.arctan, intrinsic("atan"), "Inverse tangent.", "Atan"),
    ("sinh", FLOAT, np.sinh, intrinsic("sinh"), "Hyperbolic sine.", "Sinh"),
    ("cosh", FLOAT, np.cosh, intrinsic("cosh"), "Hyperbolic cosine.", "Cosh"),
    ("tanh", FLOAT, np.tanh, intrinsic("tanh"), "Hyperbolic tangent.", "Tanh"),
    ("asinh", FLOAT, np.arcsinh, intrinsic("asinh"), "Inverse hyperbolic sine.", "Asinh"),
    ("acosh", FLOAT, np.arccosh, intrinsic("acosh"), "Inverse hyperbolic cosine.", "Acosh"),
    ("atanh", FLOAT, np.arctanh, intrinsic("atanh"), "Inverse hyperbolic tangent.", "Atanh"),
    ("erf", FLOAT, _erf, intrinsic("erf"), "The error function.", "Erf"),
    ("floor", FLOAT, np.floor, intrinsic("floor"), "Largest integer not above x.", "Floor"),
    ("ceil", FLOAT, np.ceil, intrinsic("ceil"), "Smallest integer not below x.", "Ceil"),
    ("round", FLOAT, np.rint, intrinsic("rint"), "Nearest integer, halves to even.", "Round"),
    ("trunc", FLOAT, np.trunc, intrinsic("trunc"), "Integer part.", None),
    ("sign", NUMERIC, np.sign, _sign, "-1, 0 or 1; NaN stays NaN.", "Sign"),
    ("logical_not", BOOL, np.logical_not, _logical_not, "Logical negation.", "Not"),
    ("bitwise_not", INTEGER, np.invert, intrinsic("bitwise_not"), "Every bit flipped.", "BitwiseNot"),
    ("is_nan", FLOAT, np.isnan, _is_nan, "Whether x is NaN.", "IsNaN"),
    ("is_inf", FLOAT, np.isinf, _is_inf, "Whether x is infinite, of either sign.", "IsInf"),
]

for _row in _TABLE:
    _define(*_row)
