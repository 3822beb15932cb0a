# SPDX-License-Identifier: Apache-2.0
"""Which value of the program each value of a planned function is: copies, recomputed results and views are of another one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from memc.ir.copies import is_copy, is_done
from memc.ir.core import Block, Function, Op, Value
from memc.ir.op_queries import origin_of
from memc.passes.recompute.problem import is_whole_view


@dataclass
class Life:
    """A value of the program, and what became of it in a planned function. Times are indices of ops."""

    value: Value
    uses: list[int] = field(default_factory=list)
    """Where it is made, recomputed, copied in or read, also through views, in ascending order; without starts of its copies and ends
    of those out."""
    runs: list[int] = field(default_factory=list)
    """Where its op is run again."""
    leaves: list[int] = field(default_factory=list)
    """Starts of copies to the host."""
    comes: list[int] = field(default_factory=list)
    """Starts of copies back."""


def lives_of(function: Function) -> list[Life]:
    """The values of the program in the order in which they are made, parameters first."""
    origins = origins_of(function)
    lives = {value: Life(value) for value, origin in origins.items() if origin is value}
    for index, op in enumerate(function.ops):
        if is_copy(op):
            life = lives[origins[op.operands[0]]]
            if op.name == "offload_start":
                life.leaves.append(index)
            elif op.name == "prefetch_start":
                life.comes.append(index)
            elif op.name == "prefetch_done":
                life.uses.append(index)
            continue
        touched = (*op.operands, *op.results, *(origin_of(v)[0] for v in op.operands))
        for value in dict.fromkeys(origins[v] for v in touched):
            lives[value].uses.append(index)
        for value in op.results:
            if origins[value] is not value and not is_whole_view(op):
                lives[origins[value]].runs.append(index)
    return list(lives.values())


def origins_of(function: Function) -> Mapping[Value, Value]:
    """Of each parameter and result, the value of the program that it is, or is a view of as a whole.

    A recomputed op is an equal one that reads the same values of the program, and is marked as one more run of it. Of equal ops in
    the program it is taken for the first.
    """
    origins: dict[Value, Value] = {p: p for p in function.params}
    first: dict[Hashable, Op] = {}
    equals = {p: n for n, p in enumerate(function.params)}  # The same number for results of equal ops in the program.
    for op in function.ops:
        if is_copy(op):
            origins[op.results[0]] = origins[op.operands[1 if is_done(op) else 0]]
            continue
        if op.operands and op.name != "constant" and is_whole_view(op):
            origins[op.results[0]] = origins[op.operands[0]]
            continue
        key = (_meaning(op), tuple(equals[origins[v]] for v in op.operands))
        again = first.get((key, op.plan.recompute[:-1])) if op.plan.recompute else None
        like = first.setdefault((key, op.plan.recompute), op)
        for value, other in zip(op.results, like.results):
            equals[value] = equals.get(other, len(equals))
        made = op.results if again is None else [origins[v] for v in again.results]
        origins.update(zip(op.results, made))
    return origins


def _meaning(op: Op) -> Hashable:
    """What equal ops have in common, besides their operands."""
    attrs = tuple(sorted((name, repr(value)) for name, value in op.attrs.items()))
    types = tuple(str(v.type) for v in op.results)
    return op.name, attrs, types, None if op.region is None else _body(op.region)


def _body(block: Block) -> Hashable:
    numbers = {value: number for number, value in enumerate(block.values())}
    ops = tuple((_meaning(op), tuple(numbers[v] for v in op.operands)) for op in block.ops)
    return ops, tuple(numbers[v] for v in block.returns)
