# SPDX-License-Identifier: Apache-2.0
"""The part of the lowering `Builder` of `memc.ir.ops.shared.op_def` that works on scalars, as TVM expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from memc.ir.types import DType
from memc.runtime.codegen import bf16, extrema
from memc.runtime.codegen import math_functions as mathf
from memc.runtime.codegen.expressions import (
    COMPUTED,
    DIVISIONS,
    const,
    constant_value,
    dtype_of,
    is_float,
    is_integer,
    is_load,
    node,
    walk,
)


class ScalarBuilder:
    """Combines numbers and expressions. It knows the ranges of index variables, and so which reads are safe."""

    def __init__(self, target: str, wide_index: bool = False) -> None:
        self.target = target
        self.index_dtype = "int64" if wide_index else "int32"
        self.analyzer = tvm.sym.Analyzer()

    # Ranges

    def bind_ranges(self, variables: Sequence[Any], extents: Sequence[int]) -> None:
        for variable, extent in zip(variables, extents):
            self.analyzer.bind(variable, tvm.ir.Range(0, max(extent, 1)))

    def inside(self, index: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
        """Whether an index is certainly within a shape (one read from data is not, unless its range is limited)."""
        for i, extent in zip(index, shape):
            bound = self.analyzer.const_int_bound(i)
            if int(bound.min_value) < 0 or int(bound.max_value) >= extent:
                return False
        return True

    # Scalars

    def convert(self, value: Any, dtype: str) -> Any:
        """A number or expression as an expression of `dtype`."""
        if isinstance(value, (bool, int, float)):
            return const(value, dtype)
        return value if dtype_of(value) == dtype else mathf.cast(node(value), dtype)

    def pair(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Two operands in a common type: numbers take the other's, integers widen."""
        if isinstance(a, (bool, int, float)) and isinstance(b, (bool, int, float)):
            a = self.convert(a, "float32" if isinstance(a, float) or isinstance(b, float) else self.index_dtype)
        if isinstance(a, (bool, int, float)):
            return self.convert(a, dtype_of(b)), node(b)
        if isinstance(b, (bool, int, float)):
            return node(a), self.convert(b, dtype_of(a))
        a, b = node(a), node(b)
        left, right = dtype_of(a), dtype_of(b)
        if left == right:
            return a, b
        if is_float(left) != is_float(right):
            wide = left if is_float(left) else right
            return self.convert(a, wide), self.convert(b, wide)
        wide = left if tvm_ffi.dtype(left).itemsize >= tvm_ffi.dtype(right).itemsize else right
        return self.convert(a, wide), self.convert(b, wide)

    def const(self, value: float | int | bool, dtype: DType) -> Any:
        literal = const(value, COMPUTED[dtype])
        return bf16.round_to_bf16(literal) if dtype is DType.BF16 else literal

    def cast(self, value: Any, dtype: DType) -> Any:
        converted = self.convert(value, COMPUTED[dtype])
        return bf16.round_to_bf16(converted) if dtype is DType.BF16 else converted

    def bitcast(self, value: Any, dtype: DType) -> Any:
        source = dtype_of(value)
        if dtype is DType.BF16:
            return value if source == "float32" else bf16.value_of_bf16(tirx.reinterpret("uint16", node(value)))
        if source == "float32" and dtype.itemsize == 2:
            value = bf16.bits_of_bf16(node(value))
        return value if dtype_of(value) == COMPUTED[dtype] else tirx.reinterpret(COMPUTED[dtype], node(value))

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        if isinstance(condition, bool):
            return then if condition else otherwise
        then, otherwise = self.pair(then, otherwise)
        condition = self.convert(condition, "bool")
        if self.total(then) and self.total(otherwise):
            return tirx.Select(condition, then, otherwise)
        return tirx.if_then_else(condition, then, otherwise)

    def total(self, expr: Any) -> bool:
        """Whether evaluating the expression can neither trap nor read out of range, guarded or not."""
        for found in walk(node(expr), tvm.ir.Call, *DIVISIONS):
            if is_load(found):
                if not self.inside(tuple(found.args[1:]), tuple(int(d) for d in found.args[0].shape)):
                    return False
            elif isinstance(found, DIVISIONS) and is_integer(dtype_of(found)) and not constant_value(found.b):
                return False
        return True

    def equal(self, a: Any, b: Any) -> Any:
        return mathf.equal(*self.pair(a, b))

    def not_equal(self, a: Any, b: Any) -> Any:
        return mathf.not_equal(*self.pair(a, b))

    def logical_and(self, *terms: Any) -> Any:
        return mathf.fold_logical(tirx.And, [self.convert(t, "bool") for t in terms], True)

    def logical_or(self, *terms: Any) -> Any:
        return mathf.fold_logical(tirx.Or, [self.convert(t, "bool") for t in terms], False)

    def logical_not(self, a: Any) -> Any:
        return mathf.logical_not(self.convert(a, "bool"))

    def divide(self, a: Any, b: Any) -> Any:
        return mathf.divide(*self.pair(a, b), self.target)

    def floordiv(self, a: Any, b: Any) -> Any:
        return mathf.floordiv(*self.pair(a, b), self.target)

    def floormod(self, a: Any, b: Any) -> Any:
        return mathf.floormod(*self.pair(a, b), self.target)

    def minimum(self, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return extrema.minimum(*self.pair(a, b), self.target)

    def maximum(self, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return extrema.maximum(*self.pair(a, b), self.target)

    def binary(self, name: str, a: Any, b: Any) -> Any:
        return mathf.binary(name, *self.pair(a, b), self.target)

    def unary(self, name: str, a: Any) -> Any:
        return mathf.unary(name, node(a), self.target)
