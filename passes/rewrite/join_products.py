# SPDX-License-Identifier: Apache-2.0
"""join-products: a sum of matrix products becomes one product of their operands side by side.

    a1 b1 + a2 b2 + a3 b3     [a1 a2 a3] [b1; b2; b3]

The gradient of a weight that every step of a recurrent network reads is such a sum. Taken one by one, each product and
the sum so far, all of the weight's size, are read and written at every step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Optional

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Alignment
from memc.ir.core import UNPLANNED, Function, Op, Role, Value
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.op_queries import depth_axis
from memc.ir.snapshot import Snapshot, is_raw
from memc.passes.base import Pass, alignment_of
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.rewrite.move_slices import whole_of

OPERANDS = 4
"""Operands that are put side by side take at most this many times the bytes of their product."""

MAX_CHECKS = 16
"""Sums that are tried one by one where all together would raise the peak."""

Uses = Mapping[Value, Sequence[Op]]


@dataclass(frozen=True)
class _Products:
    """Products that may be one: side by side, their left operands are `known` where some op has put them so."""

    terms: tuple[Op, ...]
    known: Value | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all operands."""
        return sum(v.type.nbytes for op in self.terms for v in op.operands)


def join_products(module: Module, function: Function, alignment: int = ALIGNMENT) -> None:
    """Join the products of every sum of them, where that does not raise the peak of the function's order of ops."""
    before = Snapshot.of(module, function)
    uses, alone = function.uses(), function.read_once()
    sums = [op for op in function.ops if _is_sum(op, uses, alone)]
    peak = planned_peak(function, alignment) if sums else 0
    if not _join(module, function, sums):
        return
    if planned_peak(function, alignment) <= peak:
        return
    before.restore()
    for op in sums[:MAX_CHECKS] if len(sums) > 1 else ():
        before = Snapshot.of(module, function)
        if _join(module, function, [op]) and planned_peak(function, alignment) > peak:
            before.restore()


def _is_sum(op: Op, uses: Uses, alone: Collection[Value]) -> bool:
    """Whether an `add` is no term of another one's sum, and has two products among its terms."""
    if op.name != "add" or not op.result.type.dtype.is_float:
        return False
    if op.result in alone and _may_hold(uses[op.result][0], op):
        return False
    return sum(_is_product(term, op, alone) for term in _terms(op, alone)) > 1


def _terms(root: Op, alone: Collection[Value]) -> list[Value]:
    """What is added up, from the first term to the last."""
    found: list[Value] = []
    pending = list(root.operands[::-1])
    while pending:
        value = pending.pop()
        op = value.op
        if op is not None and op.name == "add" and value in alone and _may_hold(root, op):
            pending += op.operands[::-1]
        else:
            found.append(value)
    return found


def _may_hold(a: Op, b: Op) -> bool:
    """Whether `add` b may be a part of sum a: of its type, and neither is a recomputation."""
    return a.name == "add" and a.result.type == b.result.type and a.plan == b.plan == UNPLANNED


def _is_product(value: Value, root: Op, alone: Collection[Value]) -> bool:
    """Whether a term is a product of two matrices, read by the sum alone. Weights of no less bytes than their product are
    not copied to lie side by side."""
    op = value.op
    if op is None or op.name != "matmul" or value.type != root.result.type or value not in alone:
        return False
    plain = op.plan == UNPLANNED
    small = (not _is_weight(v) or v.type.nbytes < value.type.nbytes for v in op.operands)
    return plain and all(v.type.rank == 2 for v in op.operands) and all(small)


def _is_weight(value: Value) -> bool:
    """Whether a value is a weight or state, or part of one."""
    return _origin(value).role in (Role.WEIGHT, Role.STATE)


def _origin(value: Value) -> Value:
    """What a value is a part of, in the end; itself if of nothing."""
    while value.op is not None and value.op.name in ("reshape", "slice", "transpose"):
        value = value.op.operands[0]
    return value


def _join(module: Module, function: Function, sums: Iterable[Op]) -> bool:
    """Join the products of these sums, and say whether any was."""
    uses, alone = function.uses(), function.read_once()
    position = {op: index for index, op in enumerate(function.ops)}
    updates = {op.operands[0]: index for index, op in enumerate(function.ops) if op.name == "assign"}
    writer = _Writer(IRBuilder(module, function, []), position)
    for root in sums:
        before = min((position[op] for op in uses[root.result]), default=len(position))
        terms = _terms(root, alone)
        products = [v.op for v in terms if v.op is not None and _is_product(v, root, alone)]
        products = [op for op in products if all(updates.get(_origin(v), before) >= before for v in op.operands)]
        groups = [
            group
            for alike in _alike(products)
            for group in _fitting(_units(alike, uses, before, position), root.result.type.nbytes)
            if sum(len(unit.terms) for unit in group) > 1
        ]
        if groups:
            writer.write(root, terms, groups, before)
    if not writer.replaced:
        return False
    function.ops = [new for op in function.ops for new in (op, *writer.after.get(op, ()))]
    for op in function.ops:
        op.operands = [writer.replaced.get(v, v) for v in op.operands]
    function.returns = [writer.replaced.get(v, v) for v in function.returns]
    remove_dead(module, function)
    return True


def _alike(products: Sequence[Op]) -> list[list[Op]]:
    """Products by how they are taken, and of what type."""
    found: dict[tuple[object, ...], list[Op]] = {}
    for op in products:
        key = (
            op.attrs.get("transpose_a", False),
            op.attrs.get("transpose_b", False),
            *(v.type.dtype for v in op.operands),
        )
        found.setdefault(key, []).append(op)
    return list(found.values())


def _units(products: Sequence[Op], uses: Uses, before: int, position: Mapping[Op, int]) -> list[_Products]:
    """The products, those together whose left operands a concat before op `before` puts side by side already."""
    by_left = {op.operands[0]: op for op in products}
    axis = depth_axis(products[0], 0)
    units, left = [], dict(by_left)
    for value in by_left if len(by_left) == len(products) else ():
        for op in uses[value]:
            if op.name != "concat" or op.attrs["axis"] != axis or position[op] >= before:
                continue
            if len(set(op.operands)) == len(op.operands) and all(v in left for v in op.operands):
                units.append(_Products(tuple(left.pop(v) for v in op.operands), op.result))
    rest = left.values() if len(by_left) == len(products) else products
    units += [_Products((op,)) for op in rest]
    return sorted(units, key=lambda unit: -position[unit.terms[0]])


def _fitting(units: Sequence[_Products], product: int) -> list[list[_Products]]:
    """Neighbours together as long as their operands take no more than `OPERANDS` products of that many bytes."""
    groups: list[list[_Products]] = []
    room = 0
    for unit in units:
        if not groups or unit.nbytes > room:
            groups.append([])
            room = OPERANDS * product
        groups[-1].append(unit)
        room -= unit.nbytes
    return groups


_Side = tuple[tuple[Value, ...], int]
"""Values to put side by side, and along which axis."""


@dataclass
class _Writer:
    """Products that take the place of sums, each as early as all that it reads is there."""

    builder: IRBuilder
    position: Mapping[Op, int]
    after: dict[Op, list[Op]] = field(default_factory=dict)
    """What comes behind an op."""
    replaced: dict[Value, Value] = field(default_factory=dict)
    sides: dict[_Side, tuple[Value, Op]] = field(default_factory=dict)
    """Values put side by side along an axis, and behind which op."""

    def write(self, root: Op, terms: Sequence[Value], groups: Sequence[Sequence[_Products]], before: int) -> None:
        """`groups`, one product each, and the rest of the terms added up, for the result of `root`, which the op at
        position `before` is the first to read."""
        b = self.builder
        b.location = root.location
        units = [unit for group in groups for unit in group]
        joined = {op for unit in units for op in unit.terms}
        sides = [self._sides(group) for group in groups]
        made = [op for group in sides for side in group if (op := self._made_behind(side, before)) is not None]
        known = [unit.known.op for unit in units if unit.known is not None and unit.known.op is not None]
        place = max([root, *known, *made], key=lambda op: self.position[op])
        total = [v for v in terms if v.op not in joined]
        for group, (left, right) in zip(groups, sides):
            operands = [self._side(left, place, before), self._side(right, place, before)]
            total.append(b.op("matmul", operands, **group[0].terms[0].attrs))
        value = total[0]
        for term in total[1:]:
            value = b.op("add", [value, term])
        self.after.setdefault(place, []).extend(b.ops)
        self.replaced[root.result] = value
        b.ops.clear()

    def _sides(self, group: Sequence[_Products]) -> tuple[_Side, _Side]:
        """What the left and the right operand put side by side."""
        lefts: list[Value] = []
        for unit in group:
            lefts += [unit.known] if unit.known is not None else [op.operands[0] for op in unit.terms]
        rights = [op.operands[1] for unit in group for op in unit.terms]
        first = group[0].terms[0]
        return (tuple(lefts), depth_axis(first, 0)), (tuple(rights), depth_axis(first, 1))

    def _made_behind(self, side: _Side, before: int) -> Op | None:
        """The op behind which `side` is there already, if that is before position `before`."""
        found = self.sides.get(side)
        return found[1] if found is not None and self.position[found[1]] < before else None

    def _side(self, side: _Side, place: Op, before: int) -> Value:
        values, axis = side
        if len(values) == 1:
            return values[0]
        if self._made_behind(side, before) is None:
            self.sides[side] = (_side_by_side(self.builder, values, axis), place)
        return self.sides[side][0]


def _side_by_side(b: IRBuilder, values: Sequence[Value], axis: int) -> Value:
    whole = whole_of(values, axis)
    if whole is None:
        return b.op("concat", values, axis=axis)
    shape = values[0].type.shape
    extent = sum(v.type.shape[axis] for v in values)
    return b.op("reshape", [whole], shape=(*shape[:axis], extent, *shape[axis + 1 :]))


@dataclass(frozen=True)
class JoinProducts(Pass):
    """Sums of matrix products become one product each. Never raises the peak."""

    name: ClassVar[str] = "join-products"
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                join_products(module, function, alignment_of(self.alignment, module))
