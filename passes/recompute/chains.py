# SPDX-License-Identifier: Apache-2.0
"""Ops that make a value and overwrite it, one after another, before anybody else has read it: such as a convolution and a
ReLU in place. Recomputed together, they give the last content in a storage of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memc.ir.core import ONCE, Function, Op, Value
from memc.ir.liveness import covers_root, output_roots
from memc.ir.op_queries import assigned_state


def may_repeat(op: Op) -> bool:
    """Whether an op may be recomputed: it only makes its results, and the same ones each time. Random ops draw from a counter,
    so they qualify, and so does an unregistered op unless it says `once`."""
    return bool(op.results) and assigned_state(op) is None and op.attrs.get(ONCE) is not True


def overwrite_chains(function: Function) -> list[tuple[Op, ...]]:
    """Chains of ops that may run as one where the first of them runs, and be recomputed as one.

    The first makes a value of the arena, and each other overwrites it, being the only reader of what was there; all else
    that it reads is there before the first. No op is in two chains.
    """
    position = {op: index for index, op in enumerate(function.ops)}
    uses = function.uses()
    outside = output_roots(function)
    versions: dict[Value, list[Value]] = {}
    for op in function.ops:
        for value in op.results:
            if value.alias is not None:
                versions.setdefault(value.root, [value.root]).append(value)
    found: list[tuple[Op, ...]] = []
    taken: set[Op] = set()
    for root, values in versions.items():
        if root in outside:
            continue
        ops = tuple(v.op for v in values if v.op is not None)
        if len(set(ops)) == len(values) and taken.isdisjoint(ops) and _run_as_one(ops, values, position, uses):
            found.append(ops)
            taken.update(ops)
    return found


def _run_as_one(
    ops: Sequence[Op], values: Sequence[Value], position: Mapping[Op, int], uses: Mapping[Value, Sequence[Op]]
) -> bool:
    """Whether op i, which makes version i of a storage, may run directly behind op i - 1, for all of them."""
    start = position[ops[0]]

    def is_there(value: Value) -> bool:
        return value.op is None or value.op.name == "constant" or position[value.op] < start

    for index, op in enumerate(ops):
        if not may_repeat(op) or not covers_root(values[index]):
            return False
        if any(v.alias is not None and v is not values[index] for v in op.results):
            return False
        if index == 0:
            continue
        before = values[index - 1]
        if position[op] <= start or set(uses[before]) != {op}:
            return False
        if not all(v is before or is_there(v) for v in op.operands):
            return False
    return True
