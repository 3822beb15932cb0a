# SPDX-License-Identifier: Apache-2.0
"""Scalar functions of kernels with numpy's semantics, as TVM expressions.

What TVM offers differs from numpy where it matters: integer division traps on zero, `tanh` loses small arguments, and its
CUDA functions are the fast, inaccurate ones. 16-bit floats compute in f32. `extrema.py` has the smaller and the larger of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from memc.runtime.codegen.expressions import bind, const, constant_value, dtype_of, is_float, is_integer, is_leaf
from memc.runtime.codegen.float32_functions import erf_float32, exp_float32
from memc.runtime.codegen.integers import guarded, integer_power, shift

LIBM = frozenset(
    "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf floor ceil trunc rint".split()
)
"""Functions that C's libm and CUDA's device library have under the same name (with suffix f for f32)."""

LLVM_INTRINSICS: dict[str, Callable[[Any], Any]] = {
    "floor": tirx.floor,
    "ceil": tirx.ceil,
    "trunc": tirx.trunc,
    "rint": tirx.nearbyint,
}
"""Functions that LLVM turns into vector instructions."""


def computing_dtype(dtype: str) -> str:
    """The type in which a function of `dtype` is computed: f32 for f16."""
    return "float32" if dtype == "float16" else dtype


def cast(value: Any, dtype: str) -> Any:
    """numpy's astype: to bool compares with zero, float to a narrow integer wraps as a conversion through i32 does."""
    source = dtype_of(value)
    if source == dtype:
        return value
    if dtype == "bool":
        return not_equal(value, const(0, source))
    if is_float(source) and is_integer(dtype):
        if source == "float16":
            value = value.astype("float32")
        if dtype == "uint64":
            return bind(value, float_to_uint64)
        narrow = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64"}
        through = narrow.get(dtype)
        return value.astype(through).astype(dtype) if through else value.astype(dtype)
    if "float16" in (source, dtype) and "float32" not in (source, dtype):
        return value.astype("float32").astype(dtype)
    return value.astype(dtype)


def float_to_uint64(x: Any) -> Any:
    """numpy's conversion, by way of int64: processors differ in what they make of negative numbers and too large ones."""
    half = const(2.0**63, dtype_of(x))

    def converted(y: Any) -> Any:
        return y.astype("int64").astype("uint64")

    return tirx.Select(tirx.GE(x, half), converted(x - half) ^ const(1 << 63, "uint64"), converted(x))


def hidden(a: Any, target: str = "llvm") -> Any:
    """A float that TVM's simplifier does not recognize: it takes x - x and x * 0 for 0, 0 / x too, and x = x for true,
    which is wrong for NaN and infinities."""
    dtype = dtype_of(a)
    if target == "cuda":
        return tirx.call_pure_extern(dtype, "memc_same", a)
    return tirx.reinterpret(dtype, tirx.reinterpret(dtype.replace("float", "int"), a))


def apart(a: Any, b: Any) -> Any:
    """`b`, hidden if `a` is the same float variable."""
    return hidden(b) if is_float(dtype_of(b)) and isinstance(b, tirx.Var) and b.same_as(a) else b


ROUNDED = {"float32": "__f{}_rn", "float64": "__d{}_rn"}
"""CUDA's functions for arithmetic that neither TVM nor nvcc looks into."""


def is_zero(a: Any, sign: float | None = None) -> bool:
    """Whether `a` is a float literal of zero (of that sign, if one is given: 1 or -1)."""
    value = constant_value(a) if is_float(dtype_of(a)) else None
    return value is not None and value == 0 and (sign is None or math.copysign(1, value) == sign)


def rounded(name: str, a: Any, b: Any, target: str) -> Any:
    """An add, sub or div of floats of which one is a literal of zero, which the simplifier must not see."""
    dtype = dtype_of(a)
    if target == "cuda" and dtype in ROUNDED:  # C takes no address of a literal, as `hidden` would.
        return tirx.call_pure_extern(dtype, ROUNDED[dtype].format(name), a, b)
    operation = {"add": tirx.Add, "sub": tirx.Sub, "div": tirx.Div}[name]
    return operation(*(hidden(x) if is_zero(x) else x for x in (a, b)))


def add(a: Any, b: Any, target: str) -> Any:
    """TVM takes a + 0 for a, whose sign is lost only if a is -0 and the zero is positive."""
    return rounded("add", a, b, target) if is_zero(a, 1) or is_zero(b, 1) else a + b


def subtract(a: Any, b: Any, target: str) -> Any:
    """TVM takes a - 0 for a, too, which is right for the positive zero only."""
    if is_zero(b, -1):
        return rounded("sub", a, b, target)
    return tirx.Sub(a, apart(a, b)) if is_float(dtype_of(a)) else a - b


ROUNDED_PRODUCT = {"float32": "__fmul_rn", "float64": "__dmul_rn"}
"""CUDA's products that no addition is fused with: whether it would be depends on what else is in the kernel, so that an op
had other bits in another group of ops."""


def multiply(a: Any, b: Any, target: str) -> Any:
    dtype = dtype_of(a)
    if target == "cuda" and dtype in ROUNDED_PRODUCT:
        return tirx.call_pure_extern(dtype, ROUNDED_PRODUCT[dtype], a, b)
    return (hidden(a) if is_zero(a) else a) * (hidden(b) if is_zero(b) else b)


def equal(a: Any, b: Any) -> Any:
    return tirx.EQ(a, apart(a, b))


def not_equal(a: Any, b: Any) -> Any:
    """True for NaN: TVM's own inequality of floats is ordered."""
    if is_float(dtype_of(a)):
        return negate_hidden(equal(a, b))
    return tirx.NE(a, b)


def fold_logical(combine: Any, terms: list[Any], empty: bool) -> Any:
    """`And` or `Or` over any number of terms."""
    if not terms:
        return const(empty, "bool")
    value = terms[0]
    for term in terms[1:]:
        value = combine(value, term)
    return value


def logical_not(a: Any) -> Any:
    """Negation."""
    return tirx.Not(a) if is_leaf(a) else negate_hidden(a)


def negate_hidden(a: Any) -> Any:
    """Negation that TVM's simplifier does not see: it would turn not(a < b) into b <= a, which is wrong for NaN."""
    return tirx.EQ(a.astype("int32"), const(0, "int32"))


def is_nan(a: Any) -> Any:
    dtype = dtype_of(a)
    if not is_float(dtype):
        return const(False, "bool")
    return tirx.isnan(cast(a, computing_dtype(dtype)))


def divide(a: Any, b: Any, target: str) -> Any:
    """Float division; integers truncate. x / 0 is 0 for integers, as in numpy, and never traps."""
    dtype = dtype_of(a)
    if is_float(dtype):
        divisor = constant_value(b)
        if divisor is not None and divisor == 0:  # TVM rejects a division by a literal zero; this product equals it
            return tirx.Mul(a, const(math.copysign(math.inf, divisor), dtype))
        return rounded("div", a, b, target) if is_zero(a) else tirx.Div(a, b)
    return guarded(a, b, tirx.truncdiv, lambda x: const(0, dtype) - x, target)


def floordiv(a: Any, b: Any, target: str) -> Any:
    dtype = dtype_of(a)
    if is_float(dtype):
        return unary_float("floor", tirx.Div(a, b))
    return guarded(a, b, tirx.floordiv, lambda x: const(0, dtype) - x, target)


def floormod(a: Any, b: Any, target: str) -> Any:
    """The remainder with the divisor's sign."""
    dtype = dtype_of(a)
    if not is_float(dtype):
        return guarded(a, b, tirx.floormod, lambda x: const(0, dtype), target)

    def fix(remainder: Any, divisor: Any) -> Any:
        zero = const(0, dtype)
        differs = tirx.NE(tirx.LT(remainder, zero).astype("int32"), tirx.LT(divisor, zero).astype("int32"))
        return tirx.Select(tirx.And(tirx.NE(remainder, zero), differs), remainder + divisor, remainder)

    return bind(b, lambda y: bind(binary("fmod", a, y, target), lambda m: fix(m, y)))


def call_math(name: str, dtype: str, *operands: Any) -> Any:
    """A function of libm (and of CUDA's device library) on f32 or f64."""
    return tirx.call_pure_extern(dtype, name + ("f" if dtype == "float32" else ""), *operands)


def unary_float(name: str, a: Any, target: str = "llvm") -> Any:
    """A function of one float; 16-bit floats through f32."""
    dtype = dtype_of(a)
    inner = computing_dtype(dtype)
    value = cast(a, inner)
    if name == "sqrt":
        result = tirx.sqrt(value)
    elif name == "rsqrt":
        result = tirx.Div(const(1, inner), tirx.sqrt(value))
    elif name in LLVM_INTRINSICS and target == "llvm":
        result = LLVM_INTRINSICS[name](value)
    elif name == "erf" and inner == "float32" and target == "llvm":
        result = erf_float32(value)
    elif name == "exp" and inner == "float32" and target == "llvm":
        result = exp_float32(value)
    elif name in LIBM:
        result = call_math(name, inner, value)
    else:
        raise ValueError(f"unknown intrinsic {name}")
    return cast(result, dtype)


def unary(name: str, a: Any, target: str) -> Any:
    """The one-operand intrinsics of `Builder.unary`."""
    dtype = dtype_of(a)
    if name == "isnan":
        return is_nan(a)
    if name == "isinf":
        if not is_float(dtype):
            return const(False, "bool")
        inner = computing_dtype(dtype)
        return tirx.EQ(tirx.abs(cast(a, inner)), const(math.inf, inner))
    if name == "bitwise_not":
        return logical_not(a) if dtype == "bool" else tirx.bitwise_not(a)
    if name == "abs":
        if dtype == "bool" or dtype.startswith("uint"):
            return a
        if is_float(dtype):
            inner = computing_dtype(dtype)
            return cast(tirx.abs(cast(a, inner)), dtype)
        return bind(a, lambda x: tirx.Select(tirx.LT(x, const(0, dtype)), const(0, dtype) - x, x))
    if not is_float(dtype):
        if name in ("floor", "ceil", "trunc", "rint"):
            return a
        return unary_float(name, a.astype("float64"), target).astype("float32")
    return unary_float(name, a, target)


def binary(name: str, a: Any, b: Any, target: str) -> Any:
    """The two-operand intrinsics of `Builder.binary`."""
    dtype = dtype_of(a)
    if name == "pow":
        return power(a, b)
    if name in ("add", "sub"):
        return (add if name == "add" else subtract)(a, b, target)
    if name == "mul":
        return multiply(a, b, target)
    if name in ("fmod", "atan2"):
        if is_float(dtype):
            inner = computing_dtype(dtype)
            return cast(call_math(name, inner, cast(a, inner), cast(b, inner)), dtype)
        if name == "fmod":
            return guarded(a, b, tirx.truncmod, lambda x: const(0, dtype), target)
    if name.startswith("bitwise_") and dtype == "bool":
        if name == "bitwise_xor":
            return tirx.NE(a.astype("int32"), b.astype("int32"))
        return tirx.And(a, b) if name == "bitwise_and" else tirx.Or(a, b)
    if name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        return getattr(tirx, name)(a, b)
    if name in ("shift_left", "shift_right"):
        return shift(name, a, b)
    raise ValueError(f"unknown intrinsic {name} on {dtype}")


def power(a: Any, b: Any) -> Any:
    """numpy's power. Small constant exponents multiply; integers square and multiply (negative exponents give 0)."""
    dtype = dtype_of(a)
    if not is_float(dtype):
        return integer_power(a, b)
    exponent = constant_value(b)
    if exponent == 1:
        return a
    if exponent == 2:
        return bind(a, lambda x: x * x)
    if exponent == 3:
        return bind(a, lambda x: x * x * x)
    inner = computing_dtype(dtype)
    if exponent == 0.5:
        return unary_float("sqrt", a)
    return cast(call_math("pow", inner, cast(a, inner), cast(b, inner)), dtype)
