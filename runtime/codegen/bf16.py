# SPDX-License-Identifier: Apache-2.0
"""bf16 as its bits (u16): TVM's own rewriting of it gives wrong values for expressions with bindings."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from tvm import tirx

from memc.runtime.codegen.expressions import bind, const, constant_value


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
