# SPDX-License-Identifier: Apache-2.0
"""Small facts about TVM expressions that the builder and the scalar functions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx

from memc.ir.types import DType
from memc.runtime.execute.tensors import FFI_DTYPE

STORED = {dtype: "uint16" if dtype is DType.BF16 else FFI_DTYPE[dtype.value] for dtype in DType}
"""The type in which kernels see each element type in memory. bf16 is handed to them as its bits, because TVM's own
rewriting of bf16 gives wrong values for expressions with bindings."""

COMPUTED = {dtype: "float32" if dtype is DType.BF16 else FFI_DTYPE[dtype.value] for dtype in DType}
"""The type of expressions over each element type. bf16 values are f32 expressions, rounded where they
are stored or cast: values between the ops of a fused group keep the precision of f32."""

DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


class KernelError(Exception):
    """A lowering broke the builder's contract (a bug in memc, not in the model)."""


def node(value: Any) -> Any:
    """An expression node: numbers and TE slices converted."""
    return value.asobject() if isinstance(value, te.tensor.TensorSlice) else tirx.convert(value)


def dtype_of(expr: Any) -> str:
    """TVM's dtype string of an expression or Python number."""
    if isinstance(expr, bool):
        return "bool"
    if isinstance(expr, int):
        return "int32"
    if isinstance(expr, float):
        return "float32"
    return str(expr.ty.dtype)


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def constant_value(expr: Any) -> int | float | None:
    """The value of a literal, else None."""
    if isinstance(expr, (int, float)):
        return expr
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return expr.value  # type: ignore[no-any-return]
    return None


def is_load(expr: Any) -> bool:
    """Whether the expression reads a TE tensor."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == "te.tensor_load"


def is_leaf(expr: Any) -> bool:
    """Whether repeating the expression costs nothing."""
    return isinstance(expr, (int, float, tirx.Var, tirx.IntImm, tirx.FloatImm)) or is_load(expr)


def bind(expr: Any, body: Callable[[Any], Any]) -> Any:
    """`body(expr)`, evaluating `expr` once however often `body` uses it.

    Bindings inside `expr` move in front of the new one, never into its value: some of TVM's passes visit a binding's value
    twice, which would double their time with each level of nesting.
    """
    if is_leaf(expr):
        return body(expr)
    bindings: list[tuple[Any, Any]] = []
    while isinstance(expr, tirx.Let):
        bindings.append((expr.var, expr.value))
        expr = expr.body
    if not is_leaf(expr):
        variable = tirx.Var("t", dtype_of(expr))
        bindings.append((variable, expr))
        expr = variable
    return with_bindings(bindings, body(expr))


def with_bindings(bindings: list[tuple[Any, Any]], expr: Any) -> Any:
    """`expr` inside bindings, the first outermost."""
    for variable, value in reversed(bindings):
        expr = tirx.Let(variable, value, expr)
    return expr


def walk(expr: Any, *kinds: type) -> list[Any]:
    """All nodes of the given kinds inside an expression, in post order."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (kinds, found.append))
    return found


def const(value: float | int | bool, dtype: str) -> Any:
    """A literal of `dtype`; integers wrap to its width as in C."""
    if is_integer(dtype):
        bits = tvm.runtime.DataType(dtype).bits
        wrapped = int(value) & ((1 << bits) - 1)
        if dtype.startswith("int") and wrapped >> (bits - 1):
            wrapped -= 1 << bits
        if dtype == "uint64" and wrapped >> 63:
            # TVM's literals have 63 bits; it would narrow one of i64, and does not compute with a complement.
            return tirx.bitwise_not(tirx.IntImm("uint64", (1 << 64) - 1 - wrapped))
        return tirx.const(wrapped, dtype)
    if dtype == "bool":
        return tirx.const(bool(value), "bool")
    return tirx.const(float(value), dtype)
