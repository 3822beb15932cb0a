# SPDX-License-Identifier: Apache-2.0
"""Ops and groups of ops, as library kernels are asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from memc.ir.build import IRBuilder
from memc.ir.core import FUSED, Block, Function, Op, Value
from memc.ir.module import Module
from memc.ir.types import DType, TensorType

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
