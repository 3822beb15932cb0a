# SPDX-License-Identifier: Apache-2.0
"""exp, tanh and erf of f32 in plain arithmetic, which LLVM keeps in vectors where a call of libm would not be.

Polynomials are weighted least-squares fits at Chebyshev nodes, reweighted towards the least greatest error; the error
of each function, rounding included, is below 3e-7 of the result (tests hold it to 1e-6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from memc.runtime.codegen.expressions import bind

EXP = (0.49999993051183766, 0.16666514790909454, 0.04166845667575974, 0.00836941888028303, 0.0013813150749645373)
"""(exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2."""
TANH = (-0.3333328392500269, 0.13331491280388613, -0.053743497588151286, 0.02065058582882808, -0.005717043538876291)
"""(tanh(x) / x - 1) / z for z = x^2 <= 0.625^2."""
ERF = (
    1.1283791657267053,
    -0.3761262582420816,
    0.11283585148332378,
    -0.026853811923485467,
    0.00518832766321667,
    -0.0008010193426628932,
    7.853860695124614e-05,
)
"""erf(x) / x for z = x^2 <= 1."""
LOG_ERFC = (
    0.00020206342094196907,
    -1.1296493350888996,
    -0.6330657595580543,
    -0.10860656819872125,
    0.02534890150836242,
    -0.004270624696778432,
    0.0004603543852207989,
    -2.4753659156655563e-05,
    2.12044355339155e-07,
)
"""log(erfc(a)) for 1 <= a <= 4."""

ROUND = 12582912.0
"""1.5 * 2^23: adding it rounds a small number to an integer, which then stands in the low bits."""
LN2_HIGH, LN2_LOW = 0.693359375, math.log(2.0) - 0.693359375


def f32(value: float) -> Any:
    return tirx.FloatImm("float32", value)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's scheme, lowest coefficient first."""
    value: Any = f32(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + f32(coefficient)
    return value


def exp(x: Any) -> Any:
    """2^n * exp(r) with |r| <= ln(2) / 2; inf and 0 beyond f32's range, denormals kept, NaN stays NaN."""
    return bind(x, clamped_exp)


def clamped_exp(x: Any) -> Any:
    low = tirx.Select(tirx.LT(x, f32(-104.0)), f32(-104.0), x)
    return bind(tirx.Select(tirx.GT(low, f32(89.0)), f32(89.0), low), reduced_exp)


def reduced_exp(x: Any) -> Any:
    return bind(x * f32(1.0 / math.log(2.0)) + f32(ROUND), lambda shifted: scaled_exp(x, shifted))


def scaled_exp(x: Any, shifted: Any) -> Any:
    def near_one(n: Any) -> Any:
        return bind(x - n * f32(LN2_HIGH) - n * f32(LN2_LOW), lambda r: polynomial(r, EXP) * (r * r) + r + f32(1.0))

    exponent = tirx.reinterpret("int32", shifted) - tirx.IntImm("int32", 0x4B400000)
    # 2^n in two halves: n reaches from -150 to 128, beyond what one f32 exponent holds.
    return bind(
        exponent,
        lambda n: bind(
            tirx.shift_right(n, tirx.IntImm("int32", 1)),
            lambda half: bind(shifted - f32(ROUND), near_one) * power_of_two(half) * power_of_two(n - half),
        ),
    )


def power_of_two(n: Any) -> Any:
    bits = tirx.shift_left(n + tirx.IntImm("int32", 127), tirx.IntImm("int32", 23))
    return tirx.reinterpret("float32", bits)


def tanh(x: Any) -> Any:
    """x + x^3 P(x^2) near 0, else 1 - 2 / (exp(2|x|) + 1) with the sign of x."""
    return bind(x, lambda v: bind(tirx.abs(v), lambda a: tanh_parts(v, a)))


def tanh_parts(x: Any, a: Any) -> Any:
    near = bind(x * x, lambda z: polynomial(z, TANH) * z * x + x)
    limited = tirx.Select(tirx.GT(a, f32(10.0)), f32(10.0), a)
    far = f32(1.0) - f32(2.0) / (exp(limited + limited) + f32(1.0))
    return tirx.Select(tirx.LT(a, f32(0.625)), near, with_sign(far, x))


def erf(x: Any) -> Any:
    """x P(x^2) up to 1, else 1 - exp(Q(|x|)) with the sign of x."""
    return bind(x, lambda v: bind(tirx.abs(v), lambda a: erf_parts(v, a)))


def erf_parts(x: Any, a: Any) -> Any:
    near = x * bind(x * x, lambda z: polynomial(z, ERF))
    limited = tirx.Select(tirx.GT(a, f32(4.0)), f32(4.0), a)
    far = f32(1.0) - exp(bind(limited, lambda v: polynomial(v, LOG_ERFC)))
    return tirx.Select(tirx.LT(a, f32(1.0)), near, with_sign(far, x))


def with_sign(value: Any, x: Any) -> Any:
    """`value` (positive or NaN), negated where x is negative."""
    return bind(value, lambda v: tirx.Select(tirx.LT(x, f32(0.0)), f32(0.0) - v, v))


FUNCTIONS = {"exp": exp, "tanh": tanh, "erf": erf}
