# SPDX-License-Identifier: Apache-2.0
"""Compile a single op for the CPU and run it: what tests of lowerings use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Op, Value
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import Decompose, Literal, lookup
from memc.ir.types import DType
from memc.runtime.codegen.lower_op import lower_op
from memc.runtime.codegen.schedule_cpu import schedule
from memc.runtime.execute.tensors import empty, tensor_over


def run_op(op: Op, inputs: Sequence[Array], in_place: int | None = None) -> list[Array]:
    """The results of `op` on `inputs`, computed by its compiled kernels (decomposed ops: by their parts').

    `in_place`: the operand whose bytes result 0 takes over. The given arrays are copied, never written to.
    """
    definition = lookup(op.name)
    if definition is not None and isinstance(definition.lower, Literal):
        value = op.attrs["value"]
        assert isinstance(value, np.ndarray)
        return [value]
    if definition is not None and isinstance(definition.lower, Decompose):
        return run_decomposed(op, inputs)
    given = [empty(v.type.shape, v.type.dtype.numpy) for v in op.operands]
    for copy, array in zip(given, inputs):
        copy[...] = array
    results = [empty(r.type.shape, r.type.dtype.numpy) for r in op.results]
    if in_place is not None and op.results[0].type.elements:
        results[0] = given[in_place].view(op.results[0].type.dtype.numpy).reshape(op.results[0].type.shape)
    tensors = {id(a): tensor_over(stored(a)) for a in (*given, *results) if a.size}
    for kernel in lower_op(op, "llvm", in_place):
        made = {"main": kernel.func} if kernel.ready else schedule(kernel.func)
        function = tvm.compile(tvm.ir.IRModule(dict(made)) if kernel.ready else made, target=tvm.target.Target("llvm"))[
            "main"
        ]
        arguments = [given[n] for n in kernel.operands] + [results[kernel.result]]
        function(*[tensors[id(a)] for a in arguments])
    return [np.array(r) for r in results]


def run_decomposed(op: Op, inputs: Sequence[Array]) -> list[Array]:
    definition = lookup(op.name)
    assert definition is not None and isinstance(definition.lower, Decompose)
    module, function = Module(), Function(params=list(op.operands))
    builder = IRBuilder(module, function, function.ops)
    returned = definition.lower.fn(builder, op)
    known: dict[Value, Array] = dict(zip(op.operands, inputs))
    known.update({p: module.weights[p.name] for p in function.params if p.name in module.weights})
    for inner in function.ops:
        known.update(zip(inner.results, run_op(inner, [known[v] for v in inner.operands])))
    return [known[v] for v in returned]


def stored(array: Array) -> Array:
    """The array as kernels see it: bf16 as its bits."""
    return array.view(np.uint16) if DType.from_numpy(array.dtype) is DType.BF16 else array
