# SPDX-License-Identifier: Apache-2.0
"""The order in which a recurrent node's weights hold their gates.

Exporters whose framework has another order of gates than ONNX write slices and concats of the weights in front of the
node. Weights that are trained would be copied at every step by those, and so would their gradients. Reading the weights
as they are, and the gates where the framework has them, needs no copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memc.ir.build import IRBuilder
from memc.ir.core import Value


@dataclass(frozen=True)
class RowRange:
    """Some rows of a value, all axes but those of a row taken as one."""

    source: Value
    start: int
    stop: int


def row_ranges(value: Value, row: tuple[int, ...]) -> list[RowRange]:
    """Where the rows of `value` [..., *row] come from, in order, through concats, slices and reshapes of whole rows."""
    count = value.type.elements // math.prod(row)
    op = value.op
    if op is None or not op.operands:
        return [RowRange(value, 0, count)]
    source = op.operands[0]
    whole = source.type.shape[source.type.rank - len(row) :] == row and source.type.rank > len(row)
    if op.name == "reshape" and (whole or row == ()):
        return row_ranges(source, row)
    if op.name == "concat" and op.attrs["axis"] == 0 and whole:
        return [found for operand in op.operands for found in row_ranges(operand, row)]
    if op.name == "slice" and whole:
        starts, stops, steps = (_ints(op.attrs[name]) for name in ("starts", "stops", "steps"))
        if steps[0] == 1 and value.type.shape[1:] == source.type.shape[1:]:
            inner = source.type.elements // source.type.shape[0] // math.prod(row)
            return cut(row_ranges(source, row), starts[0] * inner, stops[0] * inner)
    return [RowRange(value, 0, count)]


def cut(ranges: Sequence[RowRange], start: int, stop: int) -> list[RowRange]:
    """Rows `start` to `stop` of what `ranges` are in a row."""
    found, at = [], 0
    for part in ranges:
        first, last = max(start - at, 0), min(stop - at, part.stop - part.start)
        if first < last:
            found.append(RowRange(part.source, part.start + first, part.start + last))
        at += part.stop - part.start
    return found


@dataclass(frozen=True)
class GateRows:
    """Rows of all gates in a value, in an order of its own."""

    rows: RowRange
    places: tuple[int, ...]
    """How many gates lie before each gate's rows."""

    def read(self, b: IRBuilder, row: tuple[int, ...]) -> Value:
        """The rows as a value [gates * hidden, *row]."""
        source, start, stop = self.rows.source, self.rows.start, self.rows.stop
        count = source.type.elements // math.prod(row)
        flat = (count, *row)
        x = source if source.type.shape == flat else b.op("reshape", [source], shape=flat)
        if (start, stop) == (0, count):
            return x
        zeros = (0,) * len(row)
        return b.op("slice", [x], starts=(start, *zeros), stops=(stop, *row), steps=(1,) * len(flat))


def gate_rows(ranges: Sequence[RowRange], hidden: int) -> GateRows | None:
    """The one run of rows that `ranges`, `hidden` rows for each gate, are a reordering of; None if there is none."""
    gates = sum(part.stop - part.start for part in ranges) // hidden
    found = [cut(ranges, gate * hidden, (gate + 1) * hidden) for gate in range(gates)]
    starts = []
    for parts in found:
        start = parts[0].start
        for part in parts:
            if part.source is not found[0][0].source or part.start != start:
                return None
            start = part.stop
        starts.append(parts[0].start)
    first = min(starts)
    if sorted(starts) != [first + gate * hidden for gate in range(gates)]:
        return None
    places = tuple((start - first) // hidden for start in starts)
    return GateRows(RowRange(found[0][0].source, first, first + gates * hidden), places)


def _ints(value: object) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return tuple(int(v) for v in value)
