# SPDX-License-Identifier: Apache-2.0
"""Activation functions: elementwise, one float operand, parameters as attributes. `clip` and `relu` take integers too."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.casts import HALF, cast
from .shared.common import compute_dtype, count, elementwise, elementwise_in_place, float_attr, str_attr, widen
from .shared.derivatives import keep_where, one_minus, scaled, square, widen_again
from .shared.op_def import Attrs, Builder, Expr, OpDef, Trait, register, result_elements
from .unary import FLOAT, NUMERIC, accepts

ScalarFn = Callable[[Builder, Expr, DType, Attrs], Expr]
NumpyFn = Callable[[Any, Attrs], Any]

_SQRT_HALF = math.sqrt(0.5)
_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715


def _relu(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    return b.maximum(x, b.const(0, dtype))


def _sigmoid(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    one = b.const(1, dtype)
    return b.divide(one, one + b.unary("exp", x * b.const(-1, dtype)))


def _sigmoid_numpy(x: Any, attrs: Attrs) -> Any:
    return 1 / (1 + np.exp(-x))


def _leaky_relu(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    return b.select(x < b.const(0, dtype), x * b.const(float_attr(attrs, "alpha"), dtype), x)


def _elu(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    negative = (b.unary("exp", x) - b.const(1, dtype)) * b.const(float_attr(attrs, "alpha"), dtype)
    return b.select(x < b.const(0, dtype), negative, x)


def _gelu(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    half, one = b.const(0.5, dtype), b.const(1, dtype)
    if attrs["approximate"] == "tanh":
        inner = x * (one + x * x * b.const(_GELU_CUBIC, dtype)) * b.const(_GELU_SCALE, dtype)
        return x * half * (one + b.unary("tanh", inner))
    return x * half * (one + b.unary("erf", x * b.const(_SQRT_HALF, dtype)))


def _gelu_numpy(x: Any, attrs: Attrs) -> Any:
    wide = np.asarray(x, dtype=np.float64)
    if attrs["approximate"] == "tanh":
        return 0.5 * wide * (1 + np.tanh(_GELU_SCALE * (wide + _GELU_CUBIC * wide**3)))
    return 0.5 * wide * (1 + np.asarray(np.frompyfunc(math.erf, 1, 1)(wide * _SQRT_HALF), np.float64))


def _silu(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    return x * _sigmoid(b, x, dtype, attrs)


def _hard_sigmoid(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    zero, one = b.const(0, dtype), b.const(1, dtype)
    line = x * b.const(float_attr(attrs, "alpha"), dtype) + b.const(float_attr(attrs, "beta"), dtype)
    return b.select(line < zero, zero, b.select(line > one, one, line))


def _hard_sigmoid_numpy(x: Any, attrs: Attrs) -> Any:
    alpha, beta = (x.dtype.type(float_attr(attrs, key)) for key in ("alpha", "beta"))
    return np.clip(alpha * x + beta, 0, 1)


def _softplus(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    # log(1 + e^x) = max(x, 0) + log(1 + 1 / v) with v = e^|x| does not overflow, and log(1 + 1 / v) = 2 atanh(1 / (2 v + 1))
    # does not lose the digits of a small 1 / v to the 1.
    one, two = b.const(1, dtype), b.const(2, dtype)
    large = b.unary("exp", b.unary("abs", x))
    tail = b.unary("atanh", b.divide(one, large * two + one)) * two
    return _relu(b, x, dtype, attrs) + tail


def _clip(b: Builder, x: Expr, dtype: DType, attrs: Attrs) -> Expr:
    low, high = (b.const(_bound(attrs, key, dtype), dtype) for key in ("min", "max"))
    return b.minimum(b.maximum(x, low), high)


def _bound(attrs: Attrs, name: str, dtype: DType) -> int | float:
    value = float_attr(attrs, name)
    return value if dtype.is_float else int(attrs[name])  # type: ignore[arg-type]


def _clip_numpy(x: Any, attrs: Attrs) -> Any:
    dtype = DType.from_numpy(x.dtype)
    return np.clip(x, x.dtype.type(_bound(attrs, "min", dtype)), x.dtype.type(_bound(attrs, "max", dtype)))


def _check_clip(dtype: DType, attrs: Attrs) -> None:
    low, high = float_attr(attrs, "min"), float_attr(attrs, "max")
    if not low <= high:
        raise OpError(f"expected min <= max, got min = {low} and max = {high}")
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        for name in ("min", "max"):
            value = attrs[name]
            if isinstance(value, float) or not info.min <= int(value) <= info.max:  # type: ignore[arg-type]
                raise OpError(f"expected an integer of type {dtype.value} as attribute `{name}`, got {value!r}")


def _side(b: IRBuilder, op: Op) -> Value:
    """Whether an activation with slope `alpha` below 0 was there: by the result, which has the operand's sign unless
    alpha is negative."""
    seen = op.result if float_attr(op.attrs, "alpha") > 0 else op.operands[0]
    return b.op("less", [seen, b.scalar(0, seen.type.dtype)])


def _relu_slope(b: IRBuilder, op: Op, g: Value) -> Value:
    return keep_where(b, b.op("greater", [op.result, b.scalar(0, g.type.dtype)]), g)


def _sigmoid_slope(b: IRBuilder, op: Op, g: Value) -> Value:
    return b.op("mul", [g, b.op("mul", [op.result, one_minus(b, op.result)])])


def _leaky_relu_slope(b: IRBuilder, op: Op, g: Value) -> Value:
    return b.op("select", [_side(b, op), scaled(b, g, float_attr(op.attrs, "alpha")), g])


def _elu_slope(b: IRBuilder, op: Op, g: Value) -> Value:
    alpha = b.scalar(float_attr(op.attrs, "alpha"), g.type.dtype)
    # alpha e^x is the result plus alpha.
    return b.op("select", [_side(b, op), b.op("mul", [g, b.op("add", [op.result, alpha])]), g])


def _gelu_slope(b: IRBuilder, op: Op, g: Value) -> Value:
    x, dtype = op.operands[0], g.type.dtype
    one = b.scalar(1, dtype)
    if op.attrs["approximate"] == "tanh":
        inner = b.op("mul", [scaled(b, x, _GELU_SCALE), b.op("add", [one, scaled(b, square(b, x), _GELU_CUBIC)])])
        bent = b.op("tanh", [inner])
        climb = scaled(b, b.op("add", [one, scaled(b, square(b, x), 3 * _GELU_CUBIC)]), 0.5 * _GELU_SCALE)
        tail = b.op("mul", [b.op("mul", [x, one_minus(b, square(b, bent))]), climb])
    else:
        bent = b.op("erf", [scaled(b, x, _SQRT_HALF)])
        bell = b.op("exp", [scaled(b, square(b, x), -0.5)])
        tail = scaled(b, b.op("mul", [x, bell]), 1 / math.sqrt(2 * math.pi))
    return b.op("mul", [g, b.op("add", [scaled(b, b.op("add", [bent, one]), 0.5), tail])])


def _silu_slope(b: IRBuilder, op: Op, g: Value) -> Value:
    x = op.operands[0]
    s = b.op("sigmoid", [x])
    inner = b.op("add", [b.scalar(1, g.type.dtype), b.op("mul", [x, one_minus(b, s)])])
    return b.op("mul", [g, b.op("mul", [s, inner])])


def _inside_slope(b: IRBuilder, op: Op, g: Value, low: float, high: float, factor: float = 1) -> Value:
    """`factor` times the gradient where the result is strictly between the bounds."""
    y = op.result
    above = b.op("greater", [y, b.scalar(low, y.type.dtype)])
    inside = b.op("logical_and", [above, b.op("less", [y, b.scalar(high, y.type.dtype)])])
    return keep_where(b, inside, g if factor == 1 else scaled(b, g, factor))


_SLOPES: dict[str, Callable[[IRBuilder, Op, Value], Value]] = {
    "relu": _relu_slope,
    "sigmoid": _sigmoid_slope,
    "leaky_relu": _leaky_relu_slope,
    "elu": _elu_slope,
    "gelu": _gelu_slope,
    "silu": _silu_slope,
    "hard_sigmoid": lambda b, op, g: _inside_slope(b, op, g, 0, 1, float_attr(op.attrs, "alpha")),
    "softplus": lambda b, op, g: b.op("mul", [g, b.op("sigmoid", [op.operands[0]])]),
    "clip": lambda b, op, g: _inside_slope(b, op, g, float_attr(op.attrs, "min"), float_attr(op.attrs, "max")),
}
"""The gradient in the operand from the one in the result, by way of the result where that will do."""


_CURVED = ("sigmoid", "elu", "gelu", "silu", "softplus")
"""Those whose slope takes several steps, which are made in f32: a square is soon too large for f16."""

_READ = 21
"""Marks the casts of a slope, which no other gradient shares."""


def _define(
    name: str,
    summary: str,
    spec: str | None,
    numpy_fn: NumpyFn,
    scalar: ScalarFn,
    floats: Sequence[str] = (),
    kind: str = FLOAT,
) -> None:
    def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
        count(operands, 1)
        if not accepts(kind, operands[0].dtype):
            raise OpError(f"expected {kind} operand, got {operands[0]}")
        for key in floats:
            float_attr(attrs, key)
        if name == "gelu":
            str_attr(attrs, "approximate", ("none", "tanh"))
        if name == "clip":
            _check_clip(operands[0].dtype, attrs)
        return [operands[0]]

    def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(numpy_fn(widen(inputs[0]), attrs)).astype(results[0].dtype.numpy)]

    def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        (g,) = grads
        if g is None or not g.type.dtype.is_float:
            return [None]
        if g.type.dtype not in HALF or name not in _CURVED:
            return [_SLOPES[name](b, op, g)]
        wide = copy.copy(op)
        wide.operands, wide.results = ([widen_again(b, v, _READ) for v in found] for found in (op.operands, op.results))
        return [cast(b, _SLOPES[name](b, wide, widen_again(b, g, _READ)), g.type.dtype)]

    def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
        return scalar(b, x[0], compute_dtype(op.operands[0].type.dtype), op.attrs)

    register(
        OpDef(
            name=name,
            doc=f"{summary}\n\nOne operand, {kind}; the result has its type; f16 and bf16 are computed in f32.",
            spec=f"https://onnx.ai/onnx/operators/onnx__{spec}.html" if spec else None,
            infer=infer,
            evaluate=evaluate,
            gradient=gradient,
            in_place=elementwise_in_place,
            view=None,
            slices=None,
            flops=result_elements,
            lower=elementwise(element),
            library=(),
            traits=frozenset({Trait.ELEMENTWISE, Trait.CHEAP}),
        )
    )


_define("relu", "max(x, 0); NaN stays NaN.", "Relu", lambda x, attrs: np.maximum(x, 0), _relu, kind=NUMERIC)
_define("sigmoid", "1 / (1 + e^-x).", "Sigmoid", _sigmoid_numpy, _sigmoid)
_define(
    "leaky_relu",
    "x where x >= 0, else alpha x. Attribute `alpha`.",
    "LeakyRelu",
    lambda x, attrs: np.where(x < 0, x.dtype.type(float_attr(attrs, "alpha")) * x, x),
    _leaky_relu,
    ("alpha",),
)
_define(
    "elu",
    "x where x >= 0, else alpha (e^x - 1). Attribute `alpha`.",
    "Elu",
    lambda x, attrs: np.where(x < 0, x.dtype.type(float_attr(attrs, "alpha")) * np.expm1(x), x),
    _elu,
    ("alpha",),
)
_define(
    "gelu",
    "x times the normal distribution function of x (arXiv:1606.08415). Attribute `approximate`: `none` (by erf) or "
    "`tanh` (equation 2 there).",
    "Gelu",
    _gelu_numpy,
    _gelu,
)
_define("silu", "x sigmoid(x), also called swish.", "Swish", lambda x, attrs: x * _sigmoid_numpy(x, attrs), _silu)
_define(
    "hard_sigmoid",
    "alpha x + beta, kept inside [0, 1]. Attributes `alpha` and `beta`.",
    "HardSigmoid",
    _hard_sigmoid_numpy,
    _hard_sigmoid,
    ("alpha", "beta"),
)
_define("softplus", "log(1 + e^x), without overflow.", "Softplus", lambda x, attrs: np.logaddexp(0, x), _softplus)
_define(
    "clip",
    "x kept inside [min, max]; NaN stays NaN. Attributes `min` <= `max`, integers for an integer operand.",
    "Clip",
    _clip_numpy,
    _clip,
    ("min", "max"),
    NUMERIC,
)
