# SPDX-License-Identifier: Apache-2.0
"""What a module means, computed with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..arrays import native
from ..core import FUSED, Array, Block, Function, Op, Role, Value
from ..data_dependent_extents import cut
from ..errors import InvalidError, OpError, UnsupportedError
from ..module import Module
from ..ops.shared.op_def import lookup


def evaluate(module: Module, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run @main on `inputs` (arrays by parameter name); inputs are not written to.

    A state that is not among them has the content that the module holds for it.

    Returns results by result name, or by position ("0", "1" ...) where the function names none; those whose
    size depends on data are cut to it, without the counts. Raises UsageError for a size that there is no room for, InvalidError
    for missing or wrong inputs and missing weights, UnsupportedError for a foreign op.
    """
    function = module.main
    values = bind(module, function, inputs)
    _run_block(function, values)
    results = {name: np.array(values[v]) for name, v in zip(result_keys(function), function.returns)}
    return cut(results, function.extents)


def result_keys(function: Function) -> list[str]:
    """What results are called: their names, or their positions."""
    return function.result_names or [str(number) for number in range(len(function.returns))]


def bind(module: Module, function: Function, inputs: Mapping[str, Array]) -> dict[Value, Array]:
    """The parameters' arrays, checked. Raises InvalidError naming the parameter, expected and got."""
    known = {p.name for p in function.params if p.role is not Role.WEIGHT}
    for name in inputs:
        if name not in known:
            raise InvalidError(f"input `{name}`: expected one of {sorted(known)}")
    values: dict[Value, Array] = {}
    for param in function.params:
        given = param.role is not Role.WEIGHT and (param.role is not Role.STATE or param.name in inputs)
        source = inputs if given else module.weights
        if param.name not in source:
            kind = param.role.value if param.role is not None else "parameter"
            raise InvalidError(f"{kind} `{param.name}`: expected data of type {param.type}, got none")
        array = np.asarray(native(source[param.name], f"`{param.name}`"), order="C")
        if array.dtype != param.type.dtype.numpy or array.shape != param.type.shape:
            got = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise InvalidError(f"`{param.name}`: expected data of type {param.type}, got {got}")
        values[param] = array
    return values


def run_op(op: Op, operands: Sequence[Array]) -> list[Array]:
    """The results of one op; they may be views of the operands.

    Raises UnsupportedError for a foreign op, InvalidError for data that breaks the op's contract.
    """
    if op.name == FUSED and op.region is not None:
        values = dict(zip(op.region.params, operands))
        _run_block(op.region, values)
        return [values[v] for v in op.region.returns]
    definition = lookup(op.name)
    if definition is None:
        raise UnsupportedError(f"op {op.name}{at(op)}: expected a registered op to evaluate, got a foreign one")
    try:
        with np.errstate(all="ignore"):
            found = definition.evaluate(operands, op.attrs, [r.type for r in op.results])
    except OpError as error:  # the data breaks the contract, such as an index out of range
        raise InvalidError(f"op {op.name}{at(op)}: {error}") from None
    # Row-major, as in memory: numpy sums a strided view in another order.
    arrays = [np.asarray(array, order="C") for array in found]
    if len(arrays) != len(op.results):
        raise RuntimeError(f"{op.name}.evaluate gave {len(arrays)} results, expected {len(op.results)}")
    for array, result in zip(arrays, op.results):
        if array.dtype != result.type.dtype.numpy or array.shape != result.type.shape:
            raise RuntimeError(f"{op.name}.evaluate gave {array.dtype}{list(array.shape)}, expected {result.type}")
    return arrays


def at(op: Op) -> str:
    """Where the op comes from, for messages; empty if that is unknown."""
    return f" ({op.location})" if op.location else ""


def _run_block(block: Block, values: dict[Value, Array]) -> None:
    """Fill `values` with what `block` returns, dropping each array after its last use."""
    last = {operand: index for index, op in enumerate(block.ops) for operand in op.operands}
    kept = set(block.returns)
    for index, op in enumerate(block.ops):
        values.update(zip(op.results, run_op(op, [values[v] for v in op.operands])))
        for value in {*op.operands, *op.results}:
            if last.get(value, -1) <= index and value not in kept:
                del values[value]
