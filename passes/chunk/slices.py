# SPDX-License-Identifier: Apache-2.0
"""A stretch written out slice by slice, as plain ops.

    x [N, D]                       x0 = slice(x), x1 = slice(x) ...        views of x
    z = matmul(x, w)               z0 = matmul(x0, w)                      one slice of z at a time
    y = f(z)                       y0 = f(z0)                              in its place in y
    g = matmul(x^T, y)             g0 = matmul(x0^T, y0), g1 = g0 + matmul(x1^T, y1)

The results that have rows are concats of the slices, which alias planning writes straight into their places; sums over the rows are
added up, and a library's product takes in what is added.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value, replace_all_uses
from memc.ir.module import Module
from memc.passes.chunk.row_forms import RowForm, attrs_of
from memc.passes.chunk.stretch import Stretch

Bounds = tuple[int, int]
"""The first row of a slice, and the one behind its last."""


def bounds_of(rows: int, slices: int, grain: int) -> list[Bounds]:
    """At most so many slices of equal size, but for the last. Sizes of `grain` rows or more are multiples of it, so that slices
    begin where the target's alignment allows."""
    size = -(-rows // slices)
    if size >= grain:
        size = -(-size // grain) * grain
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def run_in_slices(module: Module, function: Function, stretch: Stretch, bounds: Sequence[Bounds]) -> list[Op]:
    """Put the slices in the place of the stretch's first op. What they read comes before. Returns their ops."""
    writer = _Writer(IRBuilder(module, function, []), stretch)
    for start, stop in bounds:
        writer.write_slice(start, stop)
    replaced = writer.results()
    function.ops = arrange(function, stretch, set(stretch.forms), writer.b.ops)
    replace_all_uses(function, replaced)
    return writer.b.ops


def arrange(function: Function, stretch: Stretch, inside: Collection[Op], written: Sequence[Op]) -> list[Op]:
    """The function's ops with those `written` in the place of the stretch, and of the other ops `inside`, which go away."""
    needed = _needed(stretch)
    first = min(stretch.graph.index[op] for op in stretch.forms)
    before = [op for n, op in enumerate(function.ops) if op not in inside and (n < first or op in needed)]
    early = set(before)
    after = [op for op in function.ops if op not in inside and op not in early]
    return [*before, *written, *after]


def _needed(stretch: Stretch) -> set[Op]:
    """The other ops, from the stretch's first on, that it reads results of, by way of others too."""
    index = stretch.graph.index
    first = min(index[op] for op in stretch.forms)
    found: set[Op] = set()
    pending = [v.op for v in stretch.operands]
    while pending:
        op = pending.pop()
        if op is not None and op not in found and index[op] > first:
            found.add(op)
            pending.extend(v.op for v in op.operands)
    return found


def moves_assignments(stretch: Stretch) -> bool:
    """Whether a state would be given its new content earlier than now."""
    return any(op.name == "assign" for op in _needed(stretch))


@dataclass
class _Writer:
    """Appends the ops of slices."""

    b: IRBuilder
    stretch: Stretch
    parts: dict[Value, list[Value]] = field(default_factory=dict)
    """The slices so far of each result with rows."""
    sums: dict[Value, Value] = field(default_factory=dict)
    """The sum so far of each other result."""
    shaped: dict[tuple[Value, tuple[int, ...]], Value] = field(default_factory=dict)

    def write_slice(self, start: int, stop: int) -> None:
        """The ops for rows from `start` to before `stop`."""
        local: dict[Value, Value] = {}
        for op, form in self.stretch.forms.items():
            self.b.location = op.location
            operands = [self.operand(local, form, n, v, start, stop) for n, v in enumerate(op.operands)]
            attrs = attrs_of(op, form, stop - start)
            if op.name == "reshape" and attrs["shape"] == operands[0].type.shape:
                local[op.result] = operands[0]
                continue
            value = self.b.op(op.name, operands, op.plan, **attrs)
            if form.result is not None:
                local[op.result] = value
                continue
            value = self.reshaped(value, op.result.type.shape)
            so_far = self.sums.get(op.result)
            self.sums[op.result] = value if so_far is None else self.b.op("add", [so_far, value])
        for result in self.stretch.results:
            if result in local:
                self.parts.setdefault(result, []).append(local[result])

    def operand(
        self, local: dict[Value, Value], form: RowForm, number: int, value: Value, start: int, stop: int
    ) -> Value:
        """What a slice of an op reads as its operand `number`."""
        lead = form.operands[number]
        if lead is None:
            shape = form.whole[number] if form.whole else None
            return value if shape is None else self.reshaped(value, shape)
        if value not in local:
            rest = value.type.shape[lead:]
            flat = self.reshaped(value, (self.stretch.rows, *rest))
            starts, stops = (start, *[0] * len(rest)), (stop, *rest)
            local[value] = self.b.op("slice", [flat], starts=starts, stops=stops, steps=(1,) * len(stops))
        return local[value]

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        """The value in another shape: one op for all slices that read it so."""
        if value.type.shape == shape:
            return value
        if (value, shape) not in self.shaped:
            self.shaped[value, shape] = self.b.op("reshape", [value], shape=shape)
        return self.shaped[value, shape]

    def results(self) -> dict[Value, Value]:
        """The whole results, by what they stand for."""
        found: dict[Value, Value] = {}
        for result in self.stretch.results:
            if result in self.sums:
                found[result] = self.sums[result]
                continue
            parts = self.parts[result]
            whole = parts[0] if len(parts) == 1 else self.b.op("concat", parts, axis=0)
            found[result] = self.reshaped(whole, result.type.shape)
        for old, new in found.items():
            if new.op is not None:
                new.name = old.name
        return found
