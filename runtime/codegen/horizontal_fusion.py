# SPDX-License-Identifier: Apache-2.0
"""The kernel of a horizontal fusion, as `join-kernels` found it: each thread computes the same element of all ops' results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import te

from memc.ir.core import Op, Value
from memc.runtime.codegen.expressions import KernelError
from memc.runtime.codegen.lower_op import KernelKey, kernel_key, lower_body, splat
from memc.runtime.codegen.te_builder import INDEX_LIMIT, Literal, Operand, TEBuilder


def parameters(ops: Sequence[Op]) -> list[Value]:
    """What a joint kernel is given: the operands that none of the ops makes, by first use, then all results."""
    made: set[Value] = set()
    given: dict[Value, None] = {}
    for op in ops:
        for operand in op.operands:
            if operand not in made and operand.type.elements and splat(operand) is None:
                given[operand] = None
        made.add(op.result)
    return [*given, *(op.result for op in ops)]


def lower_joint(ops: Sequence[Op], target: str) -> tvm.tirx.PrimFunc:
    """The unscheduled kernel of a run; its parameters are those of `parameters`."""
    values = [v for op in ops for v in (*op.operands, *op.results, *(op.region.values() if op.region else ()))]
    builder = TEBuilder(target, wide_index=any(v.type.elements > INDEX_LIMIT for v in values))
    known: dict[Value, Any] = {}
    results: list[te.Tensor] = []
    for op in ops:
        for operand in op.operands:
            literal = splat(operand)
            if literal is not None:
                known[operand] = Literal(
                    builder.const(literal.item(), operand.type.dtype), operand.type, builder.target
                )
            elif operand not in known:
                known[operand] = builder.placeholder(operand.type, f"operand{len(known)}")
        (result,) = lower_body(builder, op, [known[v] for v in op.operands])
        results.append(builder.materialize(result, f"result{len(results)}"))
        known[op.result] = Operand(builder, results[-1], op.result.type)
    if builder.stages:
        raise KernelError("a reduction in a joint kernel")
    given = [known[v].tensor for v in parameters(ops)[: -len(ops)]]
    # Results may lie where operands do.
    return te.create_prim_func([*given, *results]).without_attr("tirx.noalias")


@dataclass(frozen=True)
class JointKey:
    """Equal exactly for runs whose kernels are the same: what each op computes, and which values they share."""

    ops: tuple[KernelKey, ...]
    shared: tuple[tuple[int, ...], ...]
    """The numbers of each op's operands and result among all values."""


def joint_key(ops: Sequence[Op]) -> JointKey:
    """The key of a run of ops."""
    numbers: dict[Value, int] = {}
    for op in ops:
        for value in (*op.operands, op.result):
            numbers.setdefault(value, len(numbers))
    shared = tuple(tuple(numbers[v] for v in (*op.operands, op.result)) for op in ops)
    return JointKey(tuple(kernel_key(op, 0) for op in ops), shared)
