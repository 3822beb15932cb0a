# SPDX-License-Identifier: Apache-2.0
"""From one op (or fused region) to unscheduled kernels: one TVM PrimFunc for each result."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from memc.ir.core import Array, Op, Value
from memc.ir.errors import UsageError
from memc.ir.ops.shared.op_def import Compute, Routine, Trait, lookup
from memc.ir.types import TensorType
from memc.runtime.codegen.expressions import KernelError
from memc.runtime.codegen.routines import routine
from memc.runtime.codegen.te_builder import INDEX_LIMIT, Inline, Literal, TEBuilder


@dataclass(frozen=True)
class Kernel:
    """One generated function: it reads some operands of an op and writes one of its results."""

    func: tvm.tirx.PrimFunc
    """Takes the operands' buffers in order, then the result's."""
    operands: tuple[int, ...]
    """The operands of the op that it is given. Literal and empty ones are left out."""
    result: int
    """The result that it writes."""
    ready: bool = False
    """Whether it is scheduled already."""


def lower_op(op: Op, target: str, in_place: int | None = None) -> list[Kernel]:
    """The kernels of a registered op with a `Compute` or `Routine` lowering, or of a fused group, in the order to call them.

    `target`: llvm or cuda. `in_place`: the operand whose bytes result 0 takes over; its kernel comes last, so
    that the others still see the operand. Results without elements get no kernel.
    Raises KernelError for an op that has no such lowering.
    """
    order = [n for n, result in enumerate(op.results) if result.type.elements]
    definition = lookup(op.name)
    if definition is not None and isinstance(definition.lower, Routine):
        given = tuple(n for n, operand in enumerate(op.operands) if operand.type.elements)
        return [Kernel(routine(op, target), given, 0, ready=True)] if order else []
    if in_place is not None and 0 in order:
        order = order[1:] + [0]
    return [lower_result(op, n, target, in_place is not None) for n in order]


def lower_result(op: Op, number: int, target: str, may_alias: bool) -> Kernel:
    values = [*op.operands, *op.results, *(op.region.values() if op.region is not None else ())]
    builder = TEBuilder(target, wide_index=any(v.type.elements > INDEX_LIMIT for v in values))
    inputs: list[Any] = []
    given: list[int] = []
    for n, operand in enumerate(op.operands):
        literal = splat(operand)
        if literal is not None:
            inputs.append(Literal(builder.const(literal.item(), operand.type.dtype), operand.type, builder.target))
            continue
        inputs.append(builder.placeholder(operand.type, f"operand{n}"))
        if operand.type.elements:
            given.append(n)
    results = lower_body(builder, op, inputs)
    output = builder.materialize(results[number], "result")
    if not used_at_most_one(builder.stages, output):
        raise KernelError(f"{op.name} has more than one reduction in a kernel")
    parameters = [inputs[n].tensor for n in given]
    func = te.create_prim_func([*parameters, output])
    if may_alias:
        func = func.without_attr("tirx.noalias")
    return Kernel(func, tuple(given), number)


def splat(value: Value) -> Array | None:
    """The repeated element of a value defined by a `constant` op whose elements are all the same, else None."""
    if value.op is None or value.op.name != "constant":
        return None
    array = value.op.attrs["value"]
    assert isinstance(array, np.ndarray)
    if array.size == 0:
        return None
    raw = np.ascontiguousarray(array).reshape(-1)
    repeated = raw.tobytes() == raw[:1].tobytes() * raw.size
    return raw[0] if repeated else None


def lower_body(builder: TEBuilder, op: Op, inputs: Sequence[Any]) -> Sequence[Any]:
    """The result tensors of an op, or of all ops of its region."""
    if op.region is None:
        return lower_simple(builder, op, inputs)
    known: dict[Value, Any] = dict(zip(op.region.params, inputs))
    for inner in op.region.ops:
        results = lower_simple(builder, inner, [known[v] for v in inner.operands])
        known.update(zip(inner.results, results))
    return [known[v] for v in op.region.returns]


def lower_simple(builder: TEBuilder, op: Op, inputs: Sequence[Any]) -> Sequence[Any]:
    if op.name == "constant":
        return [constant_tensor(builder, op)]
    definition = lookup(op.name)
    if definition is None:
        raise KernelError(f"op {op.name} is not registered and cannot be compiled")
    if not isinstance(definition.lower, Compute):
        raise UsageError(f"op {op.name} has no kernel of its own: run the pass decompose")
    builder.may_reduce = not definition.traits & {Trait.ELEMENTWISE, Trait.INJECTIVE}
    return definition.lower.fn(builder, op, inputs)


def constant_tensor(builder: TEBuilder, op: Op) -> Any:
    """A constant inside a fused group: a literal, or a choice by index where its elements differ."""
    type = op.result.type
    repeated = splat(op.result)
    if repeated is not None:
        return Literal(builder.const(repeated.item(), type.dtype), type, builder.target)
    array = op.attrs["value"]
    assert isinstance(array, np.ndarray)

    def body(*index: Any) -> Any:
        value: Any = builder.const(array.reshape(-1)[-1].item(), type.dtype)
        flat: Any = 0
        for i, extent in zip(index, type.shape):
            flat = flat * extent + i
        for n in range(array.size - 2, -1, -1):
            literal = builder.const(array.reshape(-1)[n].item(), type.dtype)
            value = tirx.Select(tirx.EQ(flat, builder.index(n)), literal, value)
        return value

    return Inline(builder, type, body)


def used_at_most_one(stages: Sequence[te.Tensor], output: te.Tensor) -> bool:
    """Whether the output reads (or is) at most one of the reductions that were tried."""
    reached: set[Any] = set()
    pending = [output]
    while pending:
        tensor = pending.pop()
        if any(tensor.same_as(s) for s in reached):
            continue
        reached.add(tensor)
        pending.extend(tensor.op.input_tensors)
    return sum(1 for s in stages if any(s.same_as(r) for r in reached)) <= 1


@dataclass(frozen=True)
class KernelKey:
    """Equal exactly for ops whose kernels are the same. Of an op's plan it has what the kernel depends on, and no more."""

    name: str
    attrs: Hashable
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    literals: tuple[Hashable, ...]
    """What operands hold that are part of the kernel."""
    body: tuple[Hashable, ...]
    """The ops of the region."""
    overwrites: int | None
    """The operand that result 0 is written over; 0 for any, where no other result is to be written before."""


def kernel_key(op: Op, in_place: int | None) -> KernelKey:
    """The key of an op whose result 0 takes over operand `in_place`."""
    body: list[Hashable] = []
    if op.region is not None:
        numbers = {param: n for n, param in enumerate(op.region.params)}
        for inner in op.region.ops:
            operands = tuple(numbers[v] for v in inner.operands)
            for value in inner.results:
                numbers[value] = len(numbers)
            body.append((inner.name, attrs_key(inner), operands, tuple(v.type for v in inner.results)))
        body.append(tuple(numbers[v] for v in op.region.returns))
    return KernelKey(
        op.name,
        attrs_key(op),
        tuple(v.type for v in op.operands),
        tuple(v.type for v in op.results),
        tuple(literal_key(v) for v in op.operands),
        tuple(body),
        in_place if in_place is None or len(op.results) > 1 else 0,
    )


def attrs_key(op: Op) -> Hashable:
    """What an op means besides its name. What is planned of it is no part: keys name what their kernels depend on."""
    return tuple((name, attr_key(op.attrs[name])) for name in sorted(op.attrs))


def attr_key(attr: Any) -> Hashable:
    """A hashable stand-in for an attribute; floats by their bits, so that 0.0 and -0.0 differ."""
    if isinstance(attr, np.ndarray):
        return ("array", str(attr.dtype), attr.shape, attr.tobytes())
    if isinstance(attr, tuple):
        return ("tuple", *map(attr_key, attr))
    return (type(attr).__name__, attr.hex() if isinstance(attr, float) else str(attr))


def literal_key(value: Value) -> Hashable:
    literal = splat(value)
    return None if literal is None else literal.tobytes()
