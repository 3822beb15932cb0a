# SPDX-License-Identifier: Apache-2.0
"""exp and erf of f32 as polynomials, for CPUs: a loop over a call of libm does not become vector instructions."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from memc.runtime.codegen.expressions import bind, const
from memc.runtime.codegen.extrema import maximum, minimum

ERF_SATURATES = 3.92
"""The least x at which erf is 1 in f32."""

ERF_NUMERATOR = (1.1283791, 0.19146259, 0.052864017, 0.0038044905, 0.00028462138, 2.0267678e-06)
ERF_DENOMINATOR = (1.0, 0.50301198, 0.11452353, 0.015047668, 0.0011698693, 3.7837296e-05)
"""erf(x) / x as a quotient of polynomials in x^2, lowest powers first, by least squares that were reweighted until the
relative error was even: 2e-8 at most, 4e-7 once computed in f32."""


EXP_RANGE = (-105.0, 89.0)
"""Outside of it exp is 0 or infinite in f32."""

EXP_COEFFICIENTS = (0.49999994, 0.16666521, 0.041668389, 0.0083687454, 0.0013814541)
"""(exp(r) - 1 - r) / r^2 for |r| <= log(2) / 2, lowest powers first, by least squares as for erf: the relative error of exp is
3e-9 at most, 8e-8 once computed in f32."""

LOG_2 = (0.693359375, -2.1219444e-4)
"""log(2) in two parts, the first of so few bits that whole numbers up to 150 times it are exact."""

ROUNDING = 12582912.0
"""1.5 * 2^23: added to an f32 of less than 2^22, its last bits are the nearest whole number."""

ROUNDING_BITS = 0x4B400000


def polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """The polynomial in an f32; coefficients of the lowest power first."""
    value = const(coefficients[-1], "float32")
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + const(coefficient, "float32")
    return value


def exp_float32(a: Any) -> Any:
    """exp of an f32 without a call, so that loops over it become vector instructions: 2^n exp(r) with r = a - n log(2).

    NaN stays NaN. Subnormal results are rounded twice.
    """

    low, high = (const(limit, "float32") for limit in EXP_RANGE)

    def power_of_2(n: Any) -> Any:
        return tirx.reinterpret("float32", (n + const(127, "int32")) << const(23, "int32"))

    def scaled(x: Any, bits: Any) -> Any:
        # By way of the bits, as TVM takes (x + c) - c for x.
        whole = tirx.reinterpret("float32", bits) - const(ROUNDING, "float32")
        rest = x - whole * const(LOG_2[0], "float32") - whole * const(LOG_2[1], "float32")
        value = bind(rest, lambda r: polynomial(EXP_COEFFICIENTS, r) * r * r + r + const(1, "float32"))
        n = bits - const(ROUNDING_BITS, "int32")
        # In two steps, each of which is a normal number.
        half = n >> const(1, "int32")
        return value * power_of_2(half) * power_of_2(n - half)

    def rounded(x: Any) -> Any:
        near = x * const(math.log2(math.e), "float32") + const(ROUNDING, "float32")
        return bind(tirx.reinterpret("int32", near), lambda bits: scaled(x, bits))

    return bind(maximum(minimum(a, high), low), rounded)


def erf_float32(a: Any) -> Any:
    """erf of an f32 without a call, so that loops over it become vector instructions."""

    def clamped(x: Any, most: float) -> Any:
        return maximum(minimum(x, const(most, "float32")), const(-most, "float32"))

    def quotient(x: Any) -> Any:
        return bind(x * x, lambda square: x * polynomial(ERF_NUMERATOR, square) / polynomial(ERF_DENOMINATOR, square))

    return clamped(bind(clamped(a, ERF_SATURATES), quotient), 1.0)
