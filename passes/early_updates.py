# SPDX-License-Identifier: Apache-2.0
"""Updates of weights next to the products that make their gradients, so that one library call can do both.

A training step ends with w = w - rate * g for every weight. Where g is a matrix product that nothing else reads, the update
moves up to it: behind whatever still reads w. It becomes w = w + (-rate) * g, which has the same bits, and is what a matrix
product computes that adds to a matrix. So g needs no bytes at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Module, Op, Role, Value
from memc.passes.op_rules import view_offset
from memc.passes.select_kernels import library_kernel


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
    """What a value is a view of, itself if of nothing, and where that or a view of it is read last."""

    root: Mapping[Value, Value]
    last: Mapping[Value, int]

    @staticmethod
    def of(function: Function, without: Collection[Op]) -> Reads:
        """`without`: ops whose reads do not count."""
        root: dict[Value, Value] = {param: param for param in function.params}
        last: dict[Value, int] = {}
        for index, op in enumerate(function.ops):
            is_view = view_offset(op) is not None
            if op not in without and not is_view:
                last.update((root[value], index) for value in op.operands)
            root.update((value, root[op.operands[0]] if is_view else value) for value in op.results)
        return Reads(root, last)


def worthwhile(updates: Iterable[Update], reads: Reads, place: Mapping[Op, int]) -> Iterator[tuple[Update, int]]:
    """The updates that keep no more bytes alive, by waiting for a weight's last reader, than the gradient takes, each with the
    position of that reader, -1 if there is none. `place`: positions of all ops."""
    for update in updates:
        reader = reads.last.get(update.assign.operands[0], -1)
        roots = {reads.root[value] for value in update.product.operands}
        # What is made later than that waits for nobody, and nothing does where the product comes later itself.
        waiting = (r for r in roots if r.op is not None and place[r.op] < reader and reads.last.get(r, -1) < reader)
        held = sum(r.type.nbytes for r in waiting)
        if place[update.product] > reader or held <= update.product.result.type.nbytes:
            yield update, reader


def move_updates(module: Module, function: Function, target: str) -> None:
    """Put products, with their updates, where everything else that reads the weight is done."""
    updates = find_updates(function, target)
    place = {op: index for index, op in enumerate(function.ops)}
    own = {op for u in updates for op in (u.product, u.assign, u.moved)}
    moved = list(worthwhile(updates, Reads.of(function, own), place))
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
