# SPDX-License-Identifier: Apache-2.0
"""The problem of operator order that a function poses, as plain numbers for `order_solvers`.

Constants are data, so they are left out and put back in front of their first reader. What ops must follow is what
`memc.solvers.storage_dependencies` says, where values share bytes (aliases, states and their new contents), for foreign graphs as well.
Of these, `memc.planning.graph_problems` also keeps each view before the ops that read through it, for which the IR has no
values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memc.ir.core import Function, Op, Value
from memc.ir.liveness import ALIGNMENT, Lifetime, lifetimes
from memc.ir.op_queries import assigned_state
from memc.ir.ops.shared.op_def import lookup
from memc.ir.sizes import align
from memc.ir.verify.aliases import Interval, interval_of, ties_of, without
from memc.solvers.order import OrderProblem
from memc.solvers.storage_dependencies import Accesses, dependencies


def ordered_ops(ops: Sequence[Op]) -> list[Op]:
    """The ops that an order is about: all but constants."""
    return [op for op in ops if op.name != "constant"]


def storages(function: Function) -> list[Lifetime]:
    """The arena's storages by their numbers in the problem: all but workspaces."""
    workspaces = {op.workspace for op in function.ops}
    return [life for life in lifetimes(function) if life.root not in workspaces]


def order_problem(function: Function, alignment: int = ALIGNMENT) -> OrderProblem:
    """What `ordered_ops` touch in the arena, in rounded bytes, and what they must follow.

    Storages are those of the aliases that the function has.
    """
    ops = ordered_ops(function.ops)
    lives = storages(function)
    number = {life.root: index for index, life in enumerate(lives)}
    touched = ((v.root for v in (*op.operands, *op.results)) for op in ops)
    return OrderProblem(
        sizes=[align(life.nbytes, alignment) for life in lives],
        touches=[list(dict.fromkeys(number[root] for root in roots if root in number)) for roots in touched],
        after=dependencies(_accesses(ops)),
        scratch=[0 if op.workspace is None else align(op.workspace.type.nbytes, alignment) for op in ops],
    )


def arranged(ops: Sequence[Op], order: Sequence[int]) -> list[Op]:
    """The `ordered_ops` of `ops` in sequence `order`, each constant in front of its first reader."""
    waiting = {op.result: op for op in ops if op.name == "constant"}
    ordered = ordered_ops(ops)
    read = {value for op in ordered for value in op.operands}
    found = [waiting.pop(value) for value in list(waiting) if value not in read]
    for index in order:
        found += [waiting.pop(value) for value in ordered[index].operands if value in waiting]
        found.append(ordered[index])
    return found


def has_effects(op: Op) -> bool:
    """Whether an op does more than make its results: it is foreign and makes nothing. Random numbers come from operands.

    Ops of PyTorch's ATen write nothing that their schema does not state, so those that make nothing make views, but for
    assertions and prints.
    """
    if lookup(op.name) is not None or op.region is not None or op.results:
        return False
    namespace, _, name = op.name.partition(".")
    return namespace != "aten" or name.startswith(("_assert", "_print", "sym_constrain", "_functional"))


def _accesses(ops: Sequence[Op]) -> Iterator[Accesses]:
    """What each op reads and writes of the storages in which values share bytes."""
    maker: dict[Value, int] = {}
    shared = {v.root for op in ops for v in op.results if v.alias is not None}
    shared.update(found[1] for op in ops if (found := assigned_state(op)) is not None)
    for index, op in enumerate(ops):
        reads = [(value.root, interval_of(value)) for value in op.operands if value.root in shared]
        writes = [(value.root, part) for value, part in _writes(op) if value.root in shared]
        yield Accesses([maker[v] for v in op.operands if v in maker], reads, writes, has_effects(op))
        maker.update((value, index) for value in op.results)


def _writes(op: Op) -> Iterator[tuple[Value, Interval]]:
    """The parts of its results that an op writes: of a view nothing, of a concat all but what is in place already.

    The new content of a state goes over the old one, whether aliases say so yet or not.
    """
    assigned = assigned_state(op)
    if assigned is not None:
        yield assigned[1], interval_of(assigned[1])
    ties = ties_of(op)
    for number, value in enumerate(op.results):
        if number or not (ties.view or ties.slices):
            yield value, interval_of(value)
        elif ties.slices:
            yield from (
                (value, part)
                for part in without(interval_of(value), [interval_of(op.operands[k]) for k in ties.slices])
            )
