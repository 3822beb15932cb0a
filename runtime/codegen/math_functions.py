# SPDX-License-Identifier: Apache-2.0
"""Scalar functions of kernels with numpy's semantics, as TVM expressions.

What TVM offers differs from numpy where it matters: its `min` and `max` drop NaN, integer division traps on zero,
`tanh` loses small arguments, and its CUDA functions are the fast, inaccurate ones. 16-bit floats compute in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import te, tirx

from memc.runtime.codegen.expressions import bind, constant_value, dtype_of, is_float, is_integer, is_leaf

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


def const(value: float | int | bool, dtype: str) -> Any:
    """A literal of `dtype`; integers wrap to its width as in C."""
    if is_integer(dtype):
        bits = tvm.runtime.DataType(dtype).bits
        wrapped = int(value) & ((1 << bits) - 1)
        if dtype.startswith("int") and wrapped >> (bits - 1):
            wrapped -= 1 << bits
        if dtype == "uint64" and wrapped >> 63:
            return tirx.reinterpret("uint64", tirx.IntImm("int64", wrapped - (1 << 64)))
        return tirx.const(wrapped, dtype)
    if dtype == "bool":
        return tirx.const(bool(value), "bool")
    return tirx.const(float(value), dtype)


def computing_dtype(dtype: str) -> str:
    """The type in which a function of `dtype` is computed: f32 for f16."""
    return "float32" if dtype == "float16" else dtype


def bits_of_bf16(value: Any) -> Any:
    """The bits (u16) of an f32 expression rounded to bf16, half to even; NaN stays NaN."""

    def rounded(bits: Any) -> Any:
        odd = tirx.bitwise_and(tirx.shift_right(bits, const(16, "uint32")), const(1, "uint32"))
        up = tirx.shift_right(bits + (odd + const(0x7FFF, "uint32")), const(16, "uint32"))
        quiet = tirx.bitwise_or(tirx.shift_right(bits, const(16, "uint32")), const(0x40, "uint32"))
        nan = tirx.GT(tirx.bitwise_and(bits, const(0x7FFFFFFF, "uint32")), const(0x7F800000, "uint32"))
        return tirx.Select(nan, quiet, up).astype("uint16")

    return bind(tirx.reinterpret("uint32", value), rounded)


def value_of_bf16(bits: Any) -> Any:
    """The f32 value of bf16 bits (u16)."""
    return tirx.reinterpret("float32", tirx.shift_left(bits.astype("uint32"), const(16, "uint32")))


def round_to_bf16(value: Any) -> Any:
    """The nearest value that bf16 has, as f32."""
    literal = constant_value(value)
    if literal is not None:
        return const(float(np.float32(literal).astype(ml_dtypes.bfloat16)), "float32")
    return value_of_bf16(bits_of_bf16(value))


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
        narrow = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64"}
        through = narrow.get(dtype)
        return value.astype(through).astype(dtype) if through else value.astype(dtype)
    if "float16" in (source, dtype) and "float32" not in (source, dtype):
        return value.astype("float32").astype(dtype)
    return value.astype(dtype)


def equal(a: Any, b: Any) -> Any:
    return tirx.EQ(a, b)


def not_equal(a: Any, b: Any) -> Any:
    """True for NaN: TVM's own inequality of floats is ordered."""
    if is_float(dtype_of(a)):
        return negate_hidden(tirx.EQ(a, b))
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


def minimum(a: Any, b: Any, target: str = "llvm") -> Any:
    """The smaller operand; NaN if either is NaN."""
    return extremum("minimum", a, b, tirx.min, target)


def maximum(a: Any, b: Any, target: str = "llvm") -> Any:
    """The larger operand; NaN if either is NaN."""
    return extremum("maximum", a, b, tirx.max, target)


CUDA_PRELUDE = """
#define MEMC_EXTREMUM(NAME, TYPE, BEFORE) \\
  static __device__ __forceinline__ TYPE NAME(TYPE a, TYPE b) { return a BEFORE b || a != a ? a : b; }
MEMC_EXTREMUM(memc_minimum_float32, float, <)
MEMC_EXTREMUM(memc_minimum_float64, double, <)
MEMC_EXTREMUM(memc_maximum_float32, float, >)
MEMC_EXTREMUM(memc_maximum_float64, double, >)
"""
"""Functions that CUDA kernels call: b is NaN or not before a where neither condition holds."""


def extremum(name: str, a: Any, b: Any, integer: Callable[[Any, Any], Any], target: str) -> Any:
    """One call, which evaluates its operands once: chains of comparisons and bindings take TVM exponential time."""
    dtype = dtype_of(a)
    if dtype == "float16":
        return extremum(name, a.astype("float32"), b.astype("float32"), integer, target).astype("float16")
    if dtype == "bool":
        merged = integer(a.astype("int32"), b.astype("int32"))
        return tirx.NE(merged, const(0, "int32"))
    if not is_float(dtype):
        return integer(a, b)
    if target == "cuda":
        return tirx.call_pure_extern(dtype, f"memc_{name}_{dtype}", a, b)
    return tirx.call_llvm_pure_intrin(dtype, f"llvm.{name}", a, b)


def divide(a: Any, b: Any) -> Any:
    """Float division; integers truncate. x / 0 is 0 for integers, as in numpy, and never traps."""
    dtype = dtype_of(a)
    if is_float(dtype):
        divisor = constant_value(b)
        if divisor is not None and divisor == 0:  # TVM rejects a division by a literal zero; this product equals it
            return tirx.Mul(a, const(math.copysign(math.inf, divisor), dtype))
        return tirx.Div(a, b)
    return guarded(a, b, tirx.truncdiv, lambda x: const(0, dtype) - x)


def floordiv(a: Any, b: Any) -> Any:
    dtype = dtype_of(a)
    if is_float(dtype):
        return unary_float("floor", tirx.Div(a, b))
    return guarded(a, b, tirx.floordiv, lambda x: const(0, dtype) - x)


def floormod(a: Any, b: Any) -> Any:
    """The remainder with the divisor's sign."""
    dtype = dtype_of(a)
    if not is_float(dtype):
        return guarded(a, b, tirx.floormod, lambda x: const(0, dtype))

    def fix(remainder: Any, divisor: Any) -> Any:
        zero = const(0, dtype)
        differs = tirx.NE(tirx.LT(remainder, zero).astype("int32"), tirx.LT(divisor, zero).astype("int32"))
        return tirx.Select(tirx.And(tirx.NE(remainder, zero), differs), remainder + divisor, remainder)

    return bind(b, lambda y: bind(binary("fmod", a, y), lambda m: fix(m, y)))


def guarded(a: Any, b: Any, operation: Callable[[Any, Any], Any], by_minus_one: Callable[[Any], Any]) -> Any:
    """An integer division that yields 0 for a zero divisor; -1 is treated apart because INT_MIN / -1 traps."""
    dtype = dtype_of(a)
    if constant_value(b) not in (None, 0, -1):
        return operation(a, b)
    signed = dtype.startswith("int")

    def body(x: Any, y: Any) -> Any:
        zero, one = const(0, dtype), const(1, dtype)
        unsafe = tirx.EQ(y, zero)
        if signed:
            unsafe = tirx.Or(unsafe, tirx.EQ(y, const(-1, dtype)))
        safe = bind(tirx.Select(unsafe, one, y), lambda divisor: operation(x, divisor))
        if signed:
            safe = tirx.Select(tirx.EQ(y, const(-1, dtype)), by_minus_one(x), safe)
        return tirx.Select(tirx.EQ(y, zero), zero, safe)

    return bind(a, lambda x: bind(b, lambda y: body(x, y)))


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


def binary(name: str, a: Any, b: Any) -> Any:
    """The two-operand intrinsics of `Builder.binary`."""
    dtype = dtype_of(a)
    if name == "pow":
        return power(a, b)
    if name in ("fmod", "atan2"):
        if is_float(dtype):
            inner = computing_dtype(dtype)
            return cast(call_math(name, inner, cast(a, inner), cast(b, inner)), dtype)
        if name == "fmod":
            return guarded(a, b, tirx.truncmod, lambda x: const(0, dtype))
    if name.startswith("bitwise_") and dtype == "bool":
        if name == "bitwise_xor":
            return tirx.NE(a.astype("int32"), b.astype("int32"))
        return tirx.And(a, b) if name == "bitwise_and" else tirx.Or(a, b)
    if name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        return getattr(tirx, name)(a, b)
    if name in ("shift_left", "shift_right"):
        return shift(name, a, b)
    raise ValueError(f"unknown intrinsic {name} on {dtype}")


def shift(name: str, a: Any, b: Any) -> Any:
    """Shifts; by the width or more gives 0 (all sign bits for a signed right shift), as in numpy."""
    dtype = dtype_of(a)
    bits = tvm.runtime.DataType(dtype).bits
    most = const(bits - 1, dtype)

    def body(x: Any, y: Any) -> Any:
        beyond = tirx.GT(y, most)
        if dtype.startswith("int"):
            beyond = tirx.Or(beyond, tirx.LT(y, const(0, dtype)))
        amount = tirx.Select(beyond, most, y)
        if name == "shift_right" and dtype.startswith("int"):
            return tirx.shift_right(x, amount)
        shifted = tirx.shift_left(x, amount) if name == "shift_left" else tirx.shift_right(x, amount)
        return tirx.Select(beyond, const(0, dtype), shifted)

    return bind(a, lambda x: bind(b, lambda y: body(x, y)))


def power(a: Any, b: Any) -> Any:
    """numpy's power. Small constant exponents multiply; integers square and multiply (negative exponents give 0)."""
    dtype = dtype_of(a)
    exponent = constant_value(b)
    if exponent == 1:
        return a
    if exponent == 2:
        return bind(a, lambda x: x * x)
    if exponent == 3:
        return bind(a, lambda x: x * x * x)
    if is_float(dtype):
        inner = computing_dtype(dtype)
        if exponent == 0.5:
            return unary_float("sqrt", a)
        return cast(call_math("pow", inner, cast(a, inner), cast(b, inner)), dtype)
    return integer_power(a, b)


def integer_power(a: Any, b: Any) -> Any:
    """Square and multiply over the exponent's low six bits; longer exponents only differ for |base| <= 1."""
    dtype = dtype_of(a)
    one, zero = const(1, dtype), const(0, dtype)

    def step(bit: int, base: Any, exponent: Any, result: Any) -> Any:
        odd = tirx.EQ(tirx.bitwise_and(tirx.shift_right(exponent, const(bit, dtype)), one), one)
        product = tirx.Select(odd, result * base, result)
        last = bit + 1 >= min(6, tvm.runtime.DataType(dtype).bits - 1)
        if last:
            return product
        return bind(product, lambda r: bind(base * base, lambda squared: step(bit + 1, squared, exponent, r)))

    def body(base: Any, exponent: Any) -> Any:
        low = tirx.Select(
            tirx.GT(exponent, const(63, dtype)), const(62, dtype) + tirx.bitwise_and(exponent, one), exponent
        )
        value = bind(low, lambda e: step(0, base, e, one))
        if not dtype.startswith("int"):
            return value
        odd = tirx.EQ(tirx.bitwise_and(exponent, one), one)
        unit = tirx.Select(tirx.EQ(base, one), one, zero)
        unit = tirx.Select(tirx.EQ(base, const(-1, dtype)), tirx.Select(odd, const(-1, dtype), one), unit)
        return tirx.Select(tirx.LT(exponent, zero), unit, value)

    return bind(a, lambda x: bind(b, lambda y: body(x, y)))


def limits(dtype: str) -> tuple[Any, Any]:
    """The least and greatest value of a type (infinities for floats)."""
    if is_float(dtype):
        return const(-math.inf, dtype), const(math.inf, dtype)
    if dtype == "bool":
        return const(False, dtype), const(True, dtype)
    bits = tvm.runtime.DataType(dtype).bits
    if dtype.startswith("uint"):
        return const(0, dtype), const((1 << bits) - 1, dtype)
    return const(-(1 << (bits - 1)), dtype), const((1 << (bits - 1)) - 1, dtype)


def identity(kind: str, dtype: str) -> Any:
    """The neutral element of a reduction."""
    if kind == "sum":
        return const(0, dtype)
    if kind == "prod":
        return const(1, dtype)
    if kind == "max":
        return limits(dtype)[0]
    if kind == "min":
        return limits(dtype)[1]
    if kind == "any":
        return const(False, "bool")
    if kind == "all":
        return const(True, "bool")
    raise ValueError(f"unknown reduction {kind}")


def combine(kind: str, a: Any, b: Any, target: str) -> Any:
    """One step of a reduction."""
    if kind == "sum":
        return a + b
    if kind == "prod":
        return a * b
    if kind == "max":
        return maximum(a, b, target)
    if kind == "min":
        return minimum(a, b, target)
    return tirx.Or(a, b) if kind == "any" else tirx.And(a, b)


def reducer(kind: str, target: str) -> Any:
    """A TE reducer for `Builder.reduce`."""

    def step(x: Any, y: Any) -> Any:
        return combine(kind, x, y, target)

    return te.comm_reducer(step, lambda dtype: identity(kind, str(dtype)), name=kind)
