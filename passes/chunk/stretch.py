# SPDX-License-Identifier: Apache-2.0
"""Stretches: ops around a large value that can run slice by slice, in which that value need not exist as a whole.

A stretch begins with the op that makes the value, and takes in the ops that make and read what is about as large. What lies on
a way from one of its ops to another belongs to it. Ops that read a slice at another time, as a gradient reads what the forward
pass keeps, are too far away for that: what they read is a result of the stretch, and whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from memc.ir.core import Function, Op, Value
from memc.ir.ops.shared.op_def import lookup
from memc.passes.chunk.row_forms import RowForm, lead_of, row_form

LARGE = 0.5
"""The part of the value's elements from which on others are as large."""
SPAN = 400
"""Ops of the function from the first of a stretch to its last, at most."""


@dataclass(frozen=True)
class Graph:
    """A function, looked up."""

    function: Function
    index: Mapping[Op, int]
    uses: Mapping[Value, Sequence[Op]]
    returned: Collection[Value]

    @staticmethod
    def of(function: Function) -> Graph:
        return Graph(
            function, {op: n for n, op in enumerate(function.ops)}, function.uses(), frozenset(function.returns)
        )


@dataclass(frozen=True)
class Stretch:
    """Ops in execution order, each with its form on slices of the `rows` rows."""

    rows: int
    forms: Mapping[Op, RowForm]
    graph: Graph
    missed: tuple[str, ...] = ()
    """Why other ops at large values are not among them."""

    @property
    def results(self) -> list[Value]:
        """What is read elsewhere, or returned."""
        return [op.result for op in self.forms if self._is_read_outside(op.result)]

    @property
    def inside(self) -> list[Value]:
        """What no other op reads, and so exists slice by slice."""
        made = (op.result for op, form in self.forms.items() if form.result is not None)
        return [value for value in made if not self._is_read_outside(value)]

    @property
    def operands(self) -> list[Value]:
        """What is read of other ops, in order of first use."""
        return list(dict.fromkeys(v for op in self.forms for v in op.operands if v.op not in self.forms))

    @property
    def splits_sums(self) -> bool:
        """Whether any result is a sum over rows, which is added up slice by slice."""
        return any(form.result is None for form in self.forms.values())

    def _is_read_outside(self, value: Value) -> bool:
        return value in self.graph.returned or any(op not in self.forms for op in self.graph.uses[value])


def find_stretch(graph: Graph, seed: Value) -> Stretch | str:
    """The stretch around `seed`, along those of its axes that leave the most bytes inside; why there is none, if there is none."""
    found: list[Stretch] = []
    why = f"%{seed.name} has no axis to slice along"
    for rows in _row_counts(seed):
        grown = _Growth(graph, seed, rows).run()
        if isinstance(grown, str):
            why = grown
        elif large_inside(grown, seed):
            found.append(grown)
        else:
            why = grown.missed[0] if grown.missed else f"%{seed.name} is a result, or is kept for other ops"
    return max(found, key=lambda s: sum(v.type.nbytes for v in s.inside)) if found else why


def large_inside(stretch: Stretch, seed: Value) -> list[Value]:
    """Values of about the size of `seed` that exist slice by slice."""
    return [v for v in stretch.inside if is_large(v, seed)]


def is_large(value: Value, seed: Value) -> bool:
    return value.type.elements >= LARGE * seed.type.elements


def _row_counts(seed: Value) -> list[int]:
    """Numbers of positions along leading axes, most first."""
    found, product = set(), 1
    for extent in seed.type.shape[:-1]:
        product *= extent
        found.add(product)
    return sorted((n for n in found if n > 1), reverse=True)


@dataclass
class _Growth:
    """Looks for the ops of a stretch."""

    graph: Graph
    seed: Value
    rows: int
    forms: dict[Op, RowForm] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def run(self) -> Stretch | str:
        assert self.seed.op is not None
        first = self.closed({self.seed.op})
        if isinstance(first, str):
            return first
        self.forms = first
        refused: set[Op] = set()
        while (op := self.nearest(refused)) is not None:
            grown = self.closed({*self.forms, op})
            if isinstance(grown, str):
                refused.add(op)
                self.missed.append(grown)
            else:
                self.forms = grown
        self.absorb_casts()
        return Stretch(self.rows, self.forms, self.graph, tuple(self.missed))

    def nearest(self, refused: Collection[Op]) -> Op | None:
        """The next op that makes or reads a large value of the stretch."""
        found: set[Op] = set()
        for op, form in self.forms.items():
            read = [v for v, lead in zip(op.operands, form.operands) if lead is not None]
            for value in (*read, *([] if form.result is None else op.results)):
                if is_large(value, self.seed):
                    found.update(self.graph.uses[value])
                    found.update([] if value.op is None or value.op.name == "constant" else [value.op])
        found -= {*self.forms, *refused}
        place = self.graph.index[self.seed.op] if self.seed.op is not None else 0
        return min(found, key=lambda op: (abs(self.graph.index[op] - place), self.graph.index[op]), default=None)

    def closed(self, ops: set[Op]) -> dict[Op, RowForm] | str:
        """The ops, and those on the ways between them, with their forms; why that cannot be."""
        index = self.graph.index
        low, high = min(index[op] for op in ops), max(index[op] for op in ops)
        if high - low > SPAN:
            last = max(ops, key=index.__getitem__)
            return f"%{last.results[0].name} is made {high - low} ops later, as of a gradient is"
        between = self.graph.function.ops[low : high + 1]
        after: set[Op] = set(ops)
        for op in between:
            if any(v.op in after for v in op.operands):
                after.add(op)
        before: set[Op] = set(ops)
        for op in reversed(between):
            if any(user in before for v in op.results for user in self.graph.uses[v]):
                before.add(op)
        return self.formed([op for op in between if op in after and op in before])

    def formed(self, ops: Sequence[Op]) -> dict[Op, RowForm] | str:
        """The forms of ops in execution order."""
        made = {v for op in ops for v in op.results}
        sliced: set[Value] = set()
        forms: dict[Op, RowForm] = {}
        for op in ops:
            form = row_form(op, self.rows, sliced) if lookup(op.name) is not None else "it is a foreign op"
            if isinstance(form, str):
                return f"{op.name} of %{op.results[0].name if op.results else ''}: {form}"
            for value, lead in zip(op.operands, form.operands):
                if value in made and (lead is None or value not in sliced):
                    return f"{op.name} of %{op.result.name} needs all rows of %{value.name}"
            if form.result is not None:
                sliced.add(op.result)
            forms[op] = form
        return forms

    def absorb_casts(self) -> None:
        """Take in the casts to fewer bytes that alone read a result, which then is never whole in the wider type."""
        for op in list(self.forms):
            readers = self.graph.uses[op.result]
            if self.forms[op].result is None or op.result in self.graph.returned or len(readers) != 1:
                continue
            reader = readers[0]
            narrower = reader.name == "cast" and reader.result.type.nbytes < op.result.type.nbytes
            if reader not in self.forms and narrower and lead_of(reader.result.type.shape, self.rows) is not None:
                grown = self.closed({*self.forms, reader})
                if not isinstance(grown, str):
                    self.forms = grown
