# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of sizes, which are known once the dims are bound."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..context import NodeContext, converts

OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_")},
}


def _operator(name: str) -> None:
    @converts(f"operator.{name}")
    def convert(ctx: NodeContext) -> Any:
        args = [ctx.resolved(arg) for arg in ctx.node.args.values()]
        if not all(isinstance(arg, (bool, int, float)) for arg in args):
            raise ctx.unsupported("expected sizes that are known at compile time, got tensors")
        return OPERATORS[name](*args)


for _name in OPERATORS:
    _operator(_name)


@converts("aten.sym_size.int")
def sym_size(ctx: NodeContext) -> int:
    shape = ctx.value("self").type.shape
    return int(shape[ctx.axis(int(ctx.get("dim", 0)), len(shape))])


@converts("aten.sym_numel.default")
def sym_numel(ctx: NodeContext) -> int:
    return int(ctx.value("self").type.elements)


@converts("math.trunc", "torch.sym_int")
def truncated(ctx: NodeContext) -> int:
    return int(next(ctx.resolved(arg) for arg in ctx.node.args.values()))


@converts("torch.sym_float")
def as_float(ctx: NodeContext) -> float:
    return float(next(ctx.resolved(arg) for arg in ctx.node.args.values()))


@converts("torch.sym_not")
def sym_not(ctx: NodeContext) -> bool:
    return not next(ctx.resolved(arg) for arg in ctx.node.args.values())


@converts("torch.sym_max", "torch.sym_min")
def extremum(ctx: NodeContext) -> Any:
    args = [ctx.resolved(arg) for arg in ctx.node.args.values()]
    return max(args) if ctx.node.target.endswith("max") else min(args)
