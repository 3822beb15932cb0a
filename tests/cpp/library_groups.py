# SPDX-License-Identifier: Apache-2.0
"""Ops and groups of ops, as library kernels are asked for them, and calls of those held to the numpy references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from memc.ir.build import IRBuilder
from memc.ir.core import FUSED, Block, Function, Op, Value
from memc.ir.evaluate import run_op
from memc.ir.module import Module
from memc.ir.op_queries import in_place_operands
from memc.ir.types import DType, TensorType
from memc.passes.kernels.select_kernels import library_kernel

Array = npt.NDArray[Any]
Step = tuple[str, Sequence[int], dict[str, Any]]


def make_op(arrays: Sequence[Array], steps: Sequence[Step]) -> Op:
    """The op of one step, or the group of several; each reads arrays and results before it by position."""
    values = [Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape)) for i, a in enumerate(arrays)]
    function = Function(list(values))
    builder = IRBuilder(Module([function]), function, function.ops)
    known = list(values)
    for name, positions, attrs in steps:
        known.append(builder.op(name, [known[n] for n in positions], **attrs))
    if len(steps) == 1:
        return function.ops[0]
    operands = [Value(v.name, v.type) for v in values]
    return Op(FUSED, operands, [Value("y", known[-1].type)], region=Block(values, function.ops, [known[-1]]))


def check(arrays: Sequence[Array], *steps: Step, symbol: str, workspace: int = 0, in_place: int | None = None) -> None:
    """The kernel of that symbol computes what the steps do, twice. `in_place`: the operand that the result takes over."""
    op = make_op(arrays, steps)
    kernel = library_kernel(op, "cuda")
    assert kernel is not None and kernel.symbol == symbol
    wide = [a.astype(np.float64) for a in arrays]
    (expected,) = run_op(make_op(wide, steps), wide)
    if in_place is not None:
        op.plan = replace(op.plan, library_kernel=symbol)
        assert list(in_place_operands(op)) == [in_place]
    given = [a.copy() for a in arrays]
    result = np.full(op.result.type.shape, np.nan, np.float32) if in_place is None else given[in_place]
    scratch = np.zeros(workspace + 64, np.uint8)
    tensors = [*given, result, *([scratch[:workspace]] if workspace else [])]
    for _ in range(2):  # The second call finds what the first has set up.
        result[...] = np.nan if in_place is None else arrays[in_place]
        tvm_ffi.get_global_func(symbol)(*map(tvm_ffi.from_dlpack, tensors), *kernel.scalars(op))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * max(np.abs(expected).max(), 1))
    assert not scratch[workspace:].any()
