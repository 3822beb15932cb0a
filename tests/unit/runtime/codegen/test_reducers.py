# SPDX-License-Identifier: Apache-2.0
"""What reductions start from, and how they combine elements."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tvm import ir, tirx

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.types import DType
from memc.runtime.codegen.expressions import constant_value
from memc.runtime.codegen.reducers import combine, identity, limits
from memc.runtime.execute.load import load

INTEGERS = [DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64]


@pytest.mark.parametrize("dtype", INTEGERS[:-1], ids=lambda d: d.value)
def test_limits_of_integers(dtype: DType) -> None:
    """The greatest u64 is no literal."""
    info = np.iinfo(dtype.numpy)
    assert [int(bound) for bound in limits(info.dtype.name)] == [info.min, info.max]


def test_limits_of_others() -> None:
    assert [constant_value(bound) for bound in limits("float16")] == [-math.inf, math.inf]
    assert [bool(bound) for bound in limits("bool")] == [False, True]


def test_neutral_elements() -> None:
    kinds = {"sum": 0, "prod": 1, "max": -128, "min": 127}
    assert {kind: int(identity(kind, "int8")) for kind in kinds} == kinds
    assert not bool(identity("any", "bool")) and bool(identity("all", "bool"))
    with pytest.raises(ValueError, match="unknown reduction mean"):
        identity("mean", "int8")


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("name, bound", [("reduce_min", "max"), ("reduce_max", "min")])
def test_rows_of_the_worst_number(
    make_module: Callable, plan: Callable, write: Callable, dtype: DType, name: str, bound: str
) -> None:
    """Nothing but what the reduction starts from is as large, or as small."""
    x = np.full((3, 5), getattr(np.iinfo(dtype.numpy), bound), dtype.numpy)
    x[1, 2], x[2, 4] = 1, 100

    def body(b: IRBuilder, inputs: list[Value]) -> list[Value]:
        return [b.op(name, [inputs[0]], axes=(1,), keepdims=False)]

    found = load(write(plan(make_module({"x": (dtype, (3, 5))}, body))))(x)["y0"]
    assert found.tolist() == [x[0, 0], 1, 100]


@pytest.mark.parametrize("kind, plain, symbol", [("sum", tirx.Add, "memc_add"), ("prod", tirx.Mul, "memc_mul")])
def test_only_integers_on_cuda_wrap_by_a_function(kind: str, plain: type, symbol: str) -> None:
    for dtype in ("float32", "float64"):
        a, b = tirx.Var("a", dtype), tirx.Var("b", dtype)
        assert isinstance(combine(kind, a, b, "cuda"), plain)
    for dtype in ("int8", "int32", "uint64"):
        a, b = tirx.Var("a", dtype), tirx.Var("b", dtype)
        assert isinstance(combine(kind, a, b, "llvm"), plain)
        call = combine(kind, a, b, "cuda")
        assert isinstance(call, ir.Call) and call.args[0].value == f"{symbol}_{dtype}"
