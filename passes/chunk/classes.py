# SPDX-License-Identifier: Apache-2.0
"""The head of a classifier in training in slices of its classes, where slices of its rows would be too thin.

A slice of rows adds to the gradient of the whole weight, which is read and written each time. A slice of classes has rows of the
weight to itself, so nothing is read twice but the hidden states:

    for each slice    z_j = h W_j^T, l_j = log(sum(exp(z_j)))          and the scores of labels that it holds
    then              l = log(sum(exp(l_j)))
    for each slice    z_j again, g_j = (exp(z_j - l) - labels) scale, dh += g_j W_j, dW_j = g_j^T h, in its rows of dW

It takes the product once more, for slices that a cache may hold. Sums over the classes are split, those over the rows are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from memc.ir.build import IRBuilder
from memc.ir.core import Attr, Function, Op, Value, replace_all_uses
from memc.ir.module import Module
from memc.ir.types import DType
from memc.passes.chunk.class_axis import keeps_classes, sources, with_classes
from memc.passes.chunk.slices import Bounds, arrange
from memc.passes.chunk.stretch import Stretch

Env = dict[Value, Value]


@dataclass(frozen=True)
class Head:
    """A stretch that makes scores, a loss of them by softmax, and the gradients of both factors of the scores."""

    stretch: Stretch
    product: Op
    classes: int
    total: Value
    """The logarithm of the sum of the scores' exponentials, for each row."""
    greatest: Op
    """Makes the largest score of each row, ..."""
    summed: Op
    """... and this the sum of exponentials."""
    wide: frozenset[Value]
    """What has a number for each class, along its last axis."""

    def is_wide(self, value: Value) -> bool:
        """Whether a value has a number for each class."""
        return value in self.wide

    @property
    def gradients(self) -> list[Op]:
        """The products of what was made of scores."""
        return [op for op in self.stretch.forms if op.name == "matmul" and op is not self.product]

    @property
    def picks(self) -> list[Op]:
        """What takes the scores of labels."""
        return [op for op in self.stretch.forms if op.name == "gather_elements"]


def head_of(stretch: Stretch) -> Head | str:
    """The head that a stretch is; why it is none."""
    ops = list(stretch.forms)
    products = [op for op in ops if op.name == "matmul" and not any(v.op in stretch.forms for v in op.operands)]
    if len(products) != 1 or products[0].attrs.get("transpose_a") or products[0].operands[1].type.rank != 2:
        return "its scores are no product with one weight"
    product, total = products[0], _total(stretch)
    if total is None:
        return "its loss is no cross entropy of softmax"
    classes, wide = product.result.type.shape[-1], with_classes(product, ops)
    head = Head(stretch, product, classes, *total, wide)
    if classes < 2 or any(map(head.is_wide, stretch.results)):
        return "its scores are a result"
    if any(map(head.is_wide, product.operands)):
        return "what its scores are a product of is read class by class too"
    wrong = [op for op in ops if op is not product and not _fits(head, op)]
    if wrong:
        reads = any(head.is_wide(v) for v in (*wrong[0].operands, *wrong[0].results))
        return f"{wrong[0].name} takes {'all classes' if reads else 'none'} of its scores"
    sums = {op for op in ops if op.name.startswith("reduce_") and head.is_wide(op.operands[0])}
    if sums != {head.greatest, head.summed}:
        return "its scores have other sums than those of softmax"
    return _misplaced(head) or head


def _total(stretch: Stretch) -> tuple[Value, Op, Op] | None:
    """log(sum(exp(z - max(z)))) + max(z), and the ops that make the maximum and the sum."""
    for op in stretch.forms:
        made = [v.op for v in op.operands if v.op in stretch.forms]
        if op.name != "add" or len(made) != 2 or not {"log", "reshape"} == {m.name for m in made if m is not None}:
            continue
        found = {m.name: m.operands[0].op for m in made if m is not None}
        summed, greatest = found["log"], found["reshape"]
        if summed is not None and greatest is not None and (summed.name, greatest.name) == ("reduce_sum", "reduce_max"):
            return op.result, greatest, summed
    return None


def _fits(head: Head, op: Op) -> bool:
    """Whether an op that reads or makes scores, or what was made of them, can do so slice by slice."""
    reads, makes = [v for v in op.operands if head.is_wide(v)], head.is_wide(op.result)
    if makes:
        return bool(reads) and keeps_classes(op)
    if op.name == "matmul":
        if len(reads) != 1 or op.operands[0] is op.operands[1]:
            return False
        side = op.operands.index(reads[0])
        other = op.operands[1 - side]
        if other.op in head.stretch.forms or other.type.rank != 2:
            return False
        if op.attrs.get("transpose_a"):
            return reads[0].type.rank == 2 and not op.attrs.get("transpose_b")
        return side == 0
    if op.name in ("reduce_sum", "reduce_max") and reads:
        return op.attrs["axes"] == (op.operands[0].type.rank - 1,)
    if op.name == "gather_elements":
        return op.attrs["axis"] == op.operands[0].type.rank - 1 and reads == [op.operands[0]]
    return not reads


def _misplaced(head: Head) -> str | None:
    """Why ops cannot run in the sequence of slices: the sums and the scores of labels first, gradients once those are whole, and
    results last; None if they can."""
    ops, sums = head.stretch.forms, {head.greatest, head.summed}
    picks, gradients = set(head.picks), set(head.gradients)
    if sources(head.total.op.operands if head.total.op else (), ops) & (picks | gradients):
        return "its softmax is of more than scores"
    if sources([op.operands[0] for op in picks], ops) & (sums | picks | gradients):
        return "the scores of labels are of more than scores"
    if sources([op.operands[1] for op in picks], ops) & (sums | picks | gradients | {head.product}):
        return "which scores are taken depends on scores"
    known = {head.total, *(op.result for op in picks)}
    if sources([v for op in gradients for v in op.operands], ops, known) & (sums | gradients):
        return "a gradient is of more than scores and their softmax"
    added = {op for op in gradients if op.attrs.get("transpose_a")}
    ends = [v for v in head.stretch.results if v.op not in added]
    whole = {*known, *(op.result for op in gradients if op not in added)}
    if sources(ends, ops, whole) & (sums | added | {head.product}):
        return "a result is of more than the softmax and gradients"
    return None


def run_in_classes(module: Module, function: Function, head: Head, bounds: Sequence[Bounds]) -> list[Op]:
    """Put the slices in the place of the head. Returns their ops."""
    writer = _Writer(IRBuilder(module, function, []), head)
    replaced = writer.write(bounds)
    inside = {*head.stretch.forms, *(v.op for v in replaced if v.op is not None)}
    function.ops = arrange(function, head.stretch, inside, writer.b.ops)
    replace_all_uses(function, replaced)
    return writer.b.ops


@dataclass
class _Writer:
    """Appends the ops of slices."""

    b: IRBuilder
    head: Head
    rows: dict[tuple[Value, Bounds], Value] = field(default_factory=dict)
    """Rows of weights, and columns of what has a number for each class."""

    def write(self, bounds: Sequence[Bounds]) -> Env:
        """All slices. The results by what they stand for."""
        head = self.head
        known: Env = {}
        positions = [self.made(op.operands[1], known, bounds[0], 0) for op in head.picks]
        totals: list[Value] = []
        for part in bounds:
            local: Env = {}
            local[head.greatest.result] = self.finite(self.made(head.greatest.result, local, part, 0))
            total = self.made(head.total, local, part, 0)
            totals.append(self.b.op("reshape", [total], shape=(total.type.elements, 1)))
            for op, at in zip(head.picks, positions):
                self.add(known, op.result, self.picked(op, at, local, part))
        known[head.total] = self.combined(totals)
        parts: dict[Op, list[Value]] = {}
        for part in bounds:
            local = dict(known)
            for op in head.gradients:
                if op.attrs.get("transpose_a"):
                    operands = [self.made(v, local, part, 1) if head.is_wide(v) else v for v in op.operands]
                    made = self.b.op("matmul", operands, op.plan, **op.attrs)
                    parts.setdefault(op, []).append(self.narrowed(op, made))
                else:
                    weight = self.cut(op.operands[1], part, int(bool(op.attrs.get("transpose_b"))))
                    made = self.b.op("matmul", [self.made(op.operands[0], local, part, 1), weight], op.plan, **op.attrs)
                    self.add(known, op.result, made)
        found = {self.target(op): self.joined(op, made) for op, made in parts.items()}
        for result in head.stretch.results:
            if result.op not in parts:
                found[result] = self.made(result, known, bounds[0], 1)
        for old, new in found.items():
            new.name = old.name
        return found

    def add(self, known: Env, result: Value, part: Value) -> None:
        """Add a slice's part of a result to those before."""
        known[result] = self.b.op("add", [known[result], part]) if result in known else part

    def made(self, value: Value, local: Env, part: Bounds, time: int) -> Value:
        """A slice of a value, or all of one that has no number for each class. `time` tells computing it twice apart."""
        if value in local:
            return local[value]
        op = value.op
        if op is None or op not in self.head.stretch.forms:
            return self.cut(value, part, value.type.rank - 1) if self.head.is_wide(value) else value
        self.b.location = op.location
        attrs: dict[str, Attr] = dict(op.attrs)
        if op is self.head.product:
            operands = [op.operands[0], self.cut(op.operands[1], part, int(not op.attrs.get("transpose_b")))]
        else:
            operands = [self.made(v, local, part, time) for v in op.operands]
            if op.name == "reshape" and self.head.is_wide(value):
                attrs["shape"] = (*value.type.shape[:-1], part[1] - part[0])
        plan = replace(op.plan, recompute=(*op.plan.recompute, time)) if time and self.head.is_wide(value) else op.plan
        local[value] = self.b.op(op.name, operands, plan, **attrs)
        return local[value]

    def joined(self, op: Op, parts: Sequence[Value]) -> Value:
        """The gradient of a weight: its slices are rows or columns, as the classes are."""
        return self.b.op("concat", parts, axis=0 if self.head.is_wide(op.operands[0]) else 1)

    def cut(self, value: Value, part: Bounds, axis: int) -> Value:
        """Some rows or columns of a value."""
        if (value, part) not in self.rows:
            shape = value.type.shape
            starts = tuple(part[0] if d == axis else 0 for d in range(len(shape)))
            stops = tuple(part[1] if d == axis else n for d, n in enumerate(shape))
            self.rows[value, part] = self.b.op("slice", [value], starts=starts, stops=stops, steps=(1,) * len(shape))
        return self.rows[value, part]

    def finite(self, greatest: Value) -> Value:
        """What scores are moved by before exp: their maximum, but nothing where all of a slice are -inf, whose sum is 0 then."""
        b, dtype = self.b, greatest.type.dtype
        none = b.op("equal", [greatest, b.scalar(-math.inf, dtype)])
        return b.op("select", [none, b.scalar(0, dtype), greatest])

    def picked(self, op: Op, positions: Value, local: Env, part: Bounds) -> Value:
        """The scores at positions, where a slice holds them, and 0 elsewhere."""
        b = self.b
        dtype = positions.type.dtype
        scores = self.made(op.operands[0], local, part, 0)
        at = b.op("sub", [positions, b.scalar(part[0], dtype)])
        low, high = b.scalar(0, dtype), b.scalar(part[1] - part[0], dtype)
        inside = b.op("logical_and", [b.op("greater_equal", [at, low]), b.op("less", [at, high])])
        found = b.op("gather_elements", [scores, b.op("select", [inside, at, low])], **op.attrs)
        return b.op("select", [inside, found, b.scalar(0, found.type.dtype)])

    def combined(self, totals: Sequence[Value]) -> Value:
        """The logarithm of the sum of exponentials, from that of each slice."""
        b, shape = self.b, self.head.total.type.shape
        side = b.op("concat", totals, axis=1)
        greatest = b.op("reduce_max", [side], axes=(1,), keepdims=True)
        powers = b.op("exp", [b.op("sub", [side, greatest])])
        total = b.op("log", [b.op("reduce_sum", [powers], axes=(1,), keepdims=True)])
        return b.op("reshape", [b.op("add", [total, greatest])], shape=shape)

    def narrower(self, op: Op) -> Op | None:
        """The cast to fewer bytes that alone reads a gradient of a weight."""
        readers = self.head.stretch.graph.uses[op.result]
        if len(readers) != 1 or readers[0].name != "cast" or op.result in self.head.stretch.graph.returned:
            return None
        return readers[0] if readers[0].result.type.nbytes < op.result.type.nbytes else None

    def narrowed(self, op: Op, made: Value) -> Value:
        cast = self.narrower(op)
        return made if cast is None else self.b.op("cast", [made], to=cast.result.type.dtype)

    def target(self, op: Op) -> Value:
        """What the parts of a weight's gradient make up together."""
        cast = self.narrower(op)
        return op.result if cast is None else cast.result


def slices_for(head: Head, most: int) -> int:
    """The fewest slices of classes whose scores take at most so many bytes each."""
    scores = head.stretch.rows * head.classes * _stored(head).itemsize
    return max(2, -(-scores // most))


def _stored(head: Head) -> DType:
    """The element type that scores are kept in: halves, where they are rounded to those."""
    kinds = {
        op.result.type.dtype
        for op in head.stretch.forms
        if head.is_wide(op.result)
        and op.result.type.elements >= head.classes * head.stretch.rows
        and op.result.type.dtype.is_float
    }
    return min(kinds, key=lambda dtype: dtype.itemsize)
