# SPDX-License-Identifier: Apache-2.0
"""Integer functions of kernels with numpy's semantics: nothing traps, and values wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx

from memc.runtime.codegen.expressions import bind, const, constant_value, dtype_of, is_integer, is_leaf


def sealed(expr: Any, target: str) -> Any:
    """An integer expression that TVM's simplifier does not look into; others, and what is simple, as they are.

    The simplifier takes integers for unbounded, which is right for indices but not for data that wraps: it turns
    a < a + b into 0 < b, fails where a bound leaves the type, and divides the least integer by -1. It also tells LLVM that
    sums and products of 64 bits do not overflow, so those are hidden from LLVM, too.
    """
    dtype = dtype_of(expr)
    if is_leaf(expr) or not is_integer(dtype):
        return expr
    if target == "cuda":
        return tirx.call_pure_extern(dtype, f"memc_same_{dtype}", expr)
    reversed_bits = tirx.call_llvm_pure_intrin(dtype, "llvm.bitreverse", expr)
    same = tirx.call_llvm_pure_intrin(dtype, "llvm.bitreverse", reversed_bits)  # LLVM reduces both to nothing.
    if not dtype.endswith("64"):
        return same
    # A fence hands bits on as they are, and takes no instruction.
    fenced = tirx.call_llvm_pure_intrin("float64", "llvm.arithmetic.fence", tirx.reinterpret("float64", same))
    return tirx.reinterpret(dtype, fenced)


def guarded(
    a: Any, b: Any, operation: Callable[[Any, Any], Any], by_minus_one: Callable[[Any], Any], target: str
) -> Any:
    """An integer division that yields 0 for a zero divisor; -1 is treated apart because INT_MIN / -1 traps."""
    dtype = dtype_of(a)
    literal = constant_value(b)
    if literal is not None and literal > 0:
        return operation(a, b)
    signed = dtype.startswith("int")

    def body(x: Any, y: Any) -> Any:
        zero, one = const(0, dtype), const(1, dtype)
        unsafe = tirx.EQ(y, zero)
        if signed:
            unsafe = tirx.Or(unsafe, tirx.EQ(y, const(-1, dtype)))

        def choose(divisor: Any) -> Any:
            safe = operation(x, divisor)
            if signed:
                safe = tirx.Select(tirx.EQ(y, const(-1, dtype)), by_minus_one(x), safe)
            return tirx.Select(tirx.EQ(y, zero), zero, safe)

        # Bound outside of the choices: TVM's analysis rejects a binding that it meets under different conditions. Sealed,
        # since it would otherwise see through to a divisor of zero.
        return bind(sealed(tirx.Select(unsafe, one, y), target), choose)

    return bind(a, lambda x: bind(b, lambda y: body(x, y)))


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


def integer_power(a: Any, b: Any) -> Any:
    """Square and multiply over the exponent's low six bits; longer exponents only differ for |base| <= 1.

    In unsigned integers, which wrap: an overflow of signed ones is undefined for a compiler.
    """
    dtype, wide = dtype_of(a), "uint64"
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
        unsigned = base.astype(wide)
        value = bind(low, lambda e: bind(unsigned, lambda u: step(0, u, e, const(1, wide)))).astype(dtype)
        if not dtype.startswith("int"):
            return value
        odd = tirx.EQ(tirx.bitwise_and(exponent, one), one)
        unit = tirx.Select(tirx.EQ(base, one), one, zero)
        unit = tirx.Select(tirx.EQ(base, const(-1, dtype)), tirx.Select(odd, const(-1, dtype), one), unit)
        return tirx.Select(tirx.LT(exponent, zero), unit, value)

    return bind(a, lambda x: bind(b, lambda y: body(x, y)))
