# SPDX-License-Identifier: Apache-2.0
"""Reductions of kernels: neutral elements, steps, and TE's reducers."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import te, tirx

from memc.runtime.codegen.expressions import const, dtype_of, is_float, is_integer
from memc.runtime.codegen.extrema import maximum, minimum


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
    if kind in ("sum", "prod"):
        dtype = dtype_of(a)
        if target == "cuda" and is_integer(dtype):
            return tirx.call_pure_extern(dtype, f"memc_{'add' if kind == 'sum' else 'mul'}_{dtype}", a, b)
        return a + b if kind == "sum" else a * b
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
