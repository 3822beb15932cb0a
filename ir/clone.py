# SPDX-License-Identifier: Apache-2.0
"""Copies of ops: the same computation once more, with values of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .core import Block, Function, Op, Value
from .module import Module


def clone_op(op: Op, operands: Sequence[Value], names: Iterator[str]) -> Op:
    """A copy of `op` that reads `operands`; results and workspace are new values with the next of `names`.

    Memory decisions (aliases, placements) are not copied.
    """
    results = [Value(next(names), v.type) for v in op.results]
    workspace = None if op.workspace is None else Value(next(names), op.workspace.type)
    region = None if op.region is None else clone_block(op.region)
    return Op(op.name, list(operands), results, dict(op.attrs), op.plan, region, workspace, op.location)


def clone_block(block: Block) -> Block:
    """A copy of a fused group's body, its values named as before."""
    copies: dict[Value, Value] = {p: Value(p.name, p.type) for p in block.params}
    params = list(copies.values())
    ops = []
    for op in block.ops:
        results = [Value(v.name, v.type) for v in op.results]
        region = None if op.region is None else clone_block(op.region)
        operands = [copies[v] for v in op.operands]
        ops.append(Op(op.name, operands, results, dict(op.attrs), op.plan, region, None, op.location))
        copies.update(zip(op.results, results))
    return Block(params, ops, [copies[v] for v in block.returns])


def clone_module(module: Module) -> Module:
    """A copy of a module without memory decisions; the data of weights is shared."""
    functions = [_clone_function(function) for function in module.functions]
    return Module(functions, dict(module.weights), set(module.constants), dict(module.bound), module.target)


def _clone_function(function: Function) -> Function:
    copies = {p: Value(p.name, p.type, role=p.role) for p in function.params}
    params = list(copies.values())
    ops = []
    for op in function.ops:
        made = clone_op(op, [copies[v] for v in op.operands], iter([v.name for v in op.results]))
        copies.update(zip(op.results, made.results))
        ops.append(made)
    returns = [copies[v] for v in function.returns]
    return Function(params, ops, returns, function.name, list(function.result_names), list(function.extents))
