# SPDX-License-Identifier: Apache-2.0
"""Updates of weights next to the products that make their gradients, so that one library call can do both.

A training step ends with w = w - rate * g for every weight. Where g is a matrix product that nothing else reads, the update
moves up to it: behind whatever still reads w. It becomes w = w + (-rate) * g, which has the same bits, and is what a matrix
product computes that adds to a matrix. So g needs no bytes at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Role, Value
from memc.ir.module import Module
from memc.ir.op_queries import view_offset
from memc.passes.kernels.select_kernels import library_kernel


@dataclass(frozen=True)
class Update:
    """w = assign(w, w - scale * product)."""

    product: Op
    scaled: Op
    moved: Op
    assign: Op

    @property
    def scale(self) -> Value:
        """A scalar."""
        return self.scaled.operands[1 - self.scaled.operands.index(self.product.result)]


def find_updates(function: Function, target: str) -> list[Update]:
    """The updates whose product has a library kernel of `target` that takes groups."""
    alone = function.read_once()
    found = []
    for op in function.ops:
        if op.name != "assign" or op.operands[0].role is not Role.STATE:
            continue
        state, moved = op.operands[0], op.operands[1].op
        if moved is None or moved.name != "sub" or moved.operands[0] is not state or moved.result not in alone:
            continue
        scaled = moved.operands[1].op
        if scaled is None or scaled.name != "mul" or scaled.result not in alone:
            continue
        makers = [v.op for v in scaled.operands if v.op is not None and v.op.name == "matmul" and v in alone]
        if len(makers) != 1:
            continue
        update = Update(makers[0], scaled, moved, op)
        kernel = library_kernel(update.product, target)
        if (
            kernel is not None
            and kernel.groups
            and update.scale.type.rank == 0
            and state not in update.product.operands
        ):
            found.append(update)
    return found


@dataclass(frozen=True)
class Reads:
    """What a value is a view of, itself if of nothing, and at which positions that or a view of it is read."""

    root: Mapping[Value, Value]
    at: Mapping[Value, Sequence[int]]

    @staticmethod
    def of(function: Function, without: Collection[Op]) -> Reads:
        """`without`: ops whose reads do not count."""
        root: dict[Value, Value] = {param: param for param in function.params}
        at: dict[Value, list[int]] = {}
        for index, op in enumerate(function.ops):
            is_view = view_offset(op) is not None
            if op not in without and not is_view:
                for value in dict.fromkeys(root[v] for v in op.operands):
                    at.setdefault(value, []).append(index)
            root.update((value, root[op.operands[0]] if is_view else value) for value in op.results)
        return Reads(root, at)

    def last(self, value: Value) -> int:
        """The last of its positions, -1 if there is none."""
        return self.at[value][-1] if value in self.at else -1


def worthwhile(
    function: Function, updates: Iterable[Update], reads: Reads, place: Mapping[Op, int]
) -> Iterator[tuple[Update, int]]:
    """The updates that keep no more bytes alive, by waiting for a weight's last reader, than the gradient takes, each with the
    position of that reader, -1 if there is none. `place`: positions of all ops.

    The product's operands wait, or the readers run first and what they make is there that much earlier.
    """
    for update in updates:
        state = update.assign.operands[0]
        reader = reads.last(state)
        made = {r: place[r.op] for r in (reads.root[v] for v in update.product.operands) if r.op is not None}
        # What is made later than that waits for nobody.
        held = sum(r.type.nbytes for r, index in made.items() if index < reader and reads.last(r) < reader)
        ready = max(made.values(), default=-1)
        after = [function.ops[index] for index in reads.at.get(state, ()) if index > ready]
        early = sum(v.type.nbytes for op in after for v in op.results)
        if min(held, early) <= update.product.result.type.nbytes:
            yield update, reader


def move_updates(module: Module, function: Function, target: str) -> None:
    """Put products, with their updates, where everything else that reads the weight is done."""
    updates = find_updates(function, target)
    place = {op: index for index, op in enumerate(function.ops)}
    own = {op for u in updates for op in (u.product, u.assign, u.moved)}
    moved = list(worthwhile(function, updates, Reads.of(function, own), place))
    taken = {op for u, _ in moved for op in (u.product, u.scaled, u.moved, u.assign)}
    builder = IRBuilder(module, function, [])
    negative: dict[Value, Value] = {}
    due: dict[int, list[Op]] = {}
    for update, reader in moved:
        scale = update.scale
        made = -1 if scale.op is None else place[scale.op]
        if scale not in negative:
            builder.ops = due.setdefault(made, [])
            negative[scale] = builder.op("neg", [scale])
        builder.ops = due.setdefault(max(place[update.product], reader, made), [])
        builder.location = update.moved.location
        builder.ops.append(update.product)
        scaled = builder.op("mul", [update.product.result, negative[scale]])
        state = update.assign.operands[0]
        update.assign.operands = [state, builder.op("add", [state, scaled])]
        builder.ops.append(update.assign)
    ops = list(due.get(-1, ()))
    for index, op in enumerate(function.ops):
        ops += ([] if op in taken else [op]) + due.get(index, [])
    function.ops = ops
