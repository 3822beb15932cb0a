# SPDX-License-Identifier: Apache-2.0
"""bf16 as its bits (u16): TVM's own rewriting of it gives wrong values for expressions with bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import tirx

from memc.runtime.codegen.expressions import bind, const, constant_value, dtype_of


def bits_of_bf16(value: Any) -> Any:
    """The bits (u16) of an f32 expression rounded to bf16, half to even; NaN stays NaN, and what is only moved keeps its bits."""
    moved = _moved_bits(value)
    if moved is not None:
        return moved

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


def _moved_bits(value: Any) -> Any:
    """The bits that `value_of_bf16` made this f32 expression of, or a choice among such and literals; None for others."""
    if isinstance(value, tirx.Select):
        return _chosen(tirx.Select, value.condition, value.true_value, value.false_value)
    if _called(value) == "prim.if_then_else":
        return _chosen(tirx.if_then_else, *value.args)
    if _called(value) != "tirx.reinterpret" or not isinstance(value.args[0], tirx.LShift):
        return None
    wide, places = value.args[0].a, value.args[0].b
    if not isinstance(wide, tirx.Cast) or constant_value(places) != 16 or dtype_of(wide.value) != "uint16":
        return None
    return wide.value


def _called(expr: Any) -> str:
    """The name of the intrinsic that an expression calls."""
    return getattr(expr.op, "name", "") if isinstance(expr, tvm.ir.Call) else ""


def _chosen(choice: Callable[..., Any], condition: Any, then: Any, otherwise: Any) -> Any:
    sides = [
        _literal_bits(side) if constant_value(side) is not None else _moved_bits(side) for side in (then, otherwise)
    ]
    return None if any(side is None for side in sides) else choice(condition, *sides)


def _literal_bits(value: Any) -> Any:
    bits = np.float32(constant_value(value)).astype(ml_dtypes.bfloat16).view(np.uint16)
    return const(int(bits), "uint16")
