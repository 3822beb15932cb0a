# SPDX-License-Identifier: Apache-2.0
"""decompose: expand ops that state a `Decompose` lowering, so that their temporaries are planned like all else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Optional

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value, fresh_names, replace_all_uses
from memc.ir.module import Module
from memc.ir.ops.shared import op_def
from memc.ir.snapshot import is_raw
from memc.passes.base import LibraryTarget, Pass, library_target
from memc.passes.rewrite.materialize_returns import materialize_returns


def decompose(module: Module, function: Function, target: str) -> None:
    """Expand until no such op is left but those that a library kernel computes, also one of `target` that takes the whole op. Ops in the expansion inherit the location,
    and the mark of a recomputation, so that they are not merged with those of the first computation; results keep their
    names.

    Ops of a decomposition that nothing uses are left to `canonicalize`.
    """
    names = fresh_names(v.name for v in function.values())
    replaced: dict[Value, Value] = {}
    done: list[Op] = []
    pending = list(reversed(function.ops))
    while pending:
        op = pending.pop()
        definition = op_def.lookup(op.name)
        whole = _whole_kernel(definition, op, target)
        if whole is not None:
            op.plan = replace(op.plan, library_kernel=whole.symbol)
        stays = op.region is not None or op_def.chosen_kernel(op) is not None
        expand = _expansion(definition)
        if expand is None or stays:
            done.append(op)
            continue
        op.operands = [_final(v, replaced) for v in op.operands]
        expansion: list[Op] = []
        found = expand(IRBuilder(module, function, expansion, names, op.location), op)
        if found is None:
            done.append(op)
            continue
        if op.plan.recompute:
            for inner in expansion:
                inner.plan = replace(inner.plan, recompute=(*op.plan.recompute, *(inner.plan.recompute or (0,))))
        made = {value for inner in expansion for value in inner.results}
        for old, new in zip(op.results, found):
            replaced[old] = new
            if new in made:
                new.name = old.name
        pending.extend(reversed(expansion))
    function.ops = done
    replace_all_uses(function, replaced)


def _expansion(definition: op_def.OpDef | None) -> Callable[[IRBuilder, Op], Sequence[Value] | None] | None:
    """What builds other ops in the place of one; None for ops that always are kernels of their own."""
    if definition is None or isinstance(definition.lower, (op_def.Literal, op_def.Routine, op_def.Asynchronous)):
        return None
    return definition.lower.parts if isinstance(definition.lower, op_def.Compute) else definition.lower.fn


def _whole_kernel(definition: op_def.OpDef | None, op: Op, target: str) -> op_def.LibraryKernel | None:
    """The first library kernel of `target` that takes the op as it is."""
    kernels = definition.library if definition is not None and op.region is None else ()
    return next((k for k in kernels if k.whole and k.target == target and k.supports(op)), None)


def _final(value: Value, replaced: dict[Value, Value]) -> Value:
    while value in replaced:
        value = replaced[value]
    return value


@dataclass(frozen=True)
class Decompose(Pass):
    """Expand ops such as softmax and layer_norm into ops with at most one reduction each."""

    name: ClassVar[str] = "decompose"
    target: Optional[LibraryTarget] = None
    """Whose library kernels may take an op whole."""

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                decompose(module, function, library_target(self.target, module))
                materialize_returns(module, function)
