# SPDX-License-Identifier: Apache-2.0
"""Expressions that no compiler takes for simpler ones: TVM's simplifier computes with numbers that are neither NaN nor infinite
and never leave their type, and C++ knows no overflow of signed integers either.

An element's expression passes through here once, when it is complete.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from memc.runtime.codegen.expressions import (
    const,
    constant_value,
    dtype_of,
    is_float,
    is_integer,
    is_leaf,
    is_load,
    node,
    walk,
)
from memc.runtime.codegen.math_functions import hidden

WRAPPING: dict[type, str] = {tirx.Add: "add", tirx.Sub: "sub", tirx.Mul: "mul"}
"""What may leave a type."""

COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def exact(expr: Any, target: str, only_loads: bool = True) -> Any:
    """An expression over elements of TE tensors that has the same value, in the arithmetic of its types.

    - Differences of floats do not cancel: x - x, (x + y) - y, x - (x + y) are no numbers where x is none.
    - Comparisons of floats are not turned round: not(a < b) is not b <= a, and a <= b or b < a may be false.
    - On CUDA, sums, differences and products of integers wrap to their width: C++ computes narrow ones as int, and takes
      an overflow of wide ones as impossible. (LLVM is kept from looking into them by `integers.sealed`.)

    Indices of the tensors stay as they are, and if `only_loads`, so do integers that no element is part of.
    """
    expr = node(expr)
    loads: dict[Any, Any] = {}
    known: set[Any] = {let.var for let in walk(expr, tirx.Let)}

    def given(variable: Any) -> Any:
        return loads.get(variable, variable)

    def load(call: Any) -> Any:
        if not is_load(call):
            return call
        variable = tirx.Var("load", dtype_of(call))
        loads[variable] = tvm_ffi.structural_map(call, (tirx.Var, given))
        return variable

    def arithmetic(found: Any) -> Any:
        dtype = dtype_of(found)
        if is_float(dtype):
            return difference(found, target) if isinstance(found, tirx.Sub) else found
        if target != "cuda" or not is_integer(dtype) or dtype in ("uint32", "uint64"):
            return found
        if only_loads and not any(v in known or v in loads for v in walk(found, tirx.Var)):
            return found
        return tirx.call_pure_extern(dtype, f"memc_{WRAPPING[type(found)]}_{dtype}", found.a, found.b)

    def compared(found: Any) -> Any:
        if not is_float(dtype_of(found.a)):
            return found
        truth = type(found)(found.a, found.b if are_apart(found.a, found.b, loads) else hidden(found.b, target))
        return tirx.NE(tirx.Cast("int32", truth), const(0, "int32"))

    def difference(found: Any, target: str) -> Any:
        literal = constant_value(found.a) is not None or constant_value(found.b) is not None
        if literal or are_apart(found.a, found.b, loads):
            return found
        return tirx.Sub(found.a, hidden(found.b, target))

    without = tvm_ffi.structural_map(expr, (tvm.ir.Call, load))
    made = tvm_ffi.structural_map(without, [(tuple(WRAPPING), arithmetic), (COMPARISONS, compared)])
    return tvm_ffi.structural_map(made, (tirx.Var, given))


def are_apart(a: Any, b: Any, loads: dict[Any, Any]) -> bool:
    """Whether two operands are leaves that a simplifier will not find to be the same."""
    if not is_leaf(a) or not is_leaf(b):
        return False
    if isinstance(a, tirx.Var) and isinstance(b, tirx.Var):
        if a in loads and b in loads:
            return not loads[a].args[0].same_as(loads[b].args[0])
        return not a.same_as(b)
    return True
