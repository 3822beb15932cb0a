# SPDX-License-Identifier: Apache-2.0
"""The smaller and the larger of two values with numpy's semantics, as TVM expressions: TVM's own `min` and `max` drop NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from memc.runtime.codegen.expressions import const, dtype_of, is_float


def minimum(a: Any, b: Any, target: str = "llvm") -> Any:
    """The smaller operand; NaN if either is NaN."""
    return extremum("minimum", a, b, tirx.min, target)


def maximum(a: Any, b: Any, target: str = "llvm") -> Any:
    """The larger operand; NaN if either is NaN."""
    return extremum("maximum", a, b, tirx.max, target)


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
