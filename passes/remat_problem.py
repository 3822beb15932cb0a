# SPDX-License-Identifier: Apache-2.0
"""A function as a problem of recomputation, and a solution as a function again.

Views cost nothing and follow what they look into, so a view's readers read the viewed value, and whoever needs a view of
a value made anew gets a new view. Constants, parameters and returned values lie outside the arena and always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memc.ir.clone import clone_op
from memc.ir.core import RECOMPUTE, Attr, Function, Op, Role, Value, fresh_names
from memc.ir.liveness import ALIGNMENT, align
from memc.ir.ops.base import lookup
from memc.passes.op_rules import assigned_state, in_place_operands, slice_offsets, view_offset
from memc.passes.remat_solver import RematProblem


@dataclass
class RematGraph:
    """A function's ops that make bytes, and what each value looks into."""

    function: Function
    ops: list[Op]
    """All but constants and views of whole values."""
    base: dict[Value, Value]
    """What a value is a view of, in the end; itself if of nothing."""
    problem: RematProblem = field(init=False)

    @staticmethod
    def of(function: Function, cost: Callable[[Op], int], alignment: int = ALIGNMENT) -> RematGraph:
        """The problem of `function`, which must not have aliases yet. `cost` is what one more run of an op costs."""
        base: dict[Value, Value] = {p: p for p in function.params}
        ops = []
        for op in function.ops:
            if is_whole_view(op):
                base[op.result] = base[op.operands[0]]
                continue
            base.update((v, v) for v in op.results)
            if op.name != "constant":
                ops.append(op)
        graph = RematGraph(function, ops, base)
        graph.problem = graph._problem(cost, alignment)
        return graph

    def _problem(self, cost: Callable[[Op], int], alignment: int) -> RematProblem:
        outside = {self.base[v] for v in self.function.returns}
        number = {v: index for index, v in enumerate(v for op in self.ops for v in op.results)}
        assigns = {found[1]: index for index, op in enumerate(self.ops) if (found := assigned_state(op)) is not None}
        outside.update(self.ops[index].results[0] for index in assigns.values())
        until = []
        for index, op in enumerate(self.ops):
            states = dict.fromkeys(self.base[v] for v in op.operands if self.base[v].role is Role.STATE)
            until.append([assigns[state] for state in states if assigns.get(state, -1) > index])
        read = [list(dict.fromkeys(self.base[v] for v in op.operands)) for op in self.ops]
        return RematProblem(
            sizes=[0 if v in outside else align(v.type.nbytes, alignment) for v in number],
            costs=[cost(op) for op in self.ops],
            once=[not may_repeat(op) for op in self.ops],
            scratch=[0 if op.workspace is None else align(op.workspace.type.nbytes, alignment) for op in self.ops],
            reads=[[number[v] for v in values if v in number] for values in read],
            makes=[[number[v] for v in op.results] for op in self.ops],
            over=[[number[v] for v in self._may_take_over(op) if v in number and v not in outside] for op in self.ops],
            parts=[
                [number[v] for v in self._parts(op, alignment) if v in number and v not in outside] for op in self.ops
            ],
            until=until,
        )

    def _may_take_over(self, op: Op) -> list[Value]:
        """Values whose bytes result 0 of `op` may take over, if they are not needed any more."""
        allowed = in_place_operands(op)
        found = []
        for k in allowed:
            value = self.base[op.operands[k]]
            apart = all(self.base[v] is not value or j in allowed for j, v in enumerate(op.operands))
            if apart and value.type.nbytes == op.results[0].type.nbytes:
                found.append(value)
        return list(dict.fromkeys(found))

    def _parts(self, op: Op, alignment: int) -> list[Value]:
        """Values that result 0 of `op` holds side by side, each in bytes of its own, if it is where they die."""
        offsets = slice_offsets(op)
        bases = [self.base[v] for v in op.operands]
        return [
            base
            for k, base in enumerate(bases)
            if (offset := offsets[k]) is not None and offset % alignment == 0 and bases.count(base) == 1
        ]

    def rewrite(self, sequence: Sequence[int]) -> None:
        """Make the function run its ops in `sequence`; copies carry `{recompute = i}`.

        What was an operand is then the latest copy of it, so take a `Snapshot` first to go back.
        """
        writer = _Writer(self)
        runs = [0] * len(self.ops)
        for number in sequence:
            writer.run(self.ops[number], runs[number])
            runs[number] += 1
        self.function.ops = writer.finish()


def is_whole_view(op: Op) -> bool:
    """Whether an op's result is operand 0's bytes, all of them."""
    return view_offset(op) == 0 and op.results[0].type.nbytes == op.operands[0].type.nbytes


def may_repeat(op: Op) -> bool:
    """Whether an op may run again: it is known, and only makes its results. Random ops draw from a counter, so they may."""
    known = lookup(op.name) is not None or op.region is not None
    return known and bool(op.results) and assigned_state(op) is None


class _Writer:
    """Ops in their new sequence; constants and views come in front of their first reader."""

    def __init__(self, graph: RematGraph) -> None:
        self.graph = graph
        self.names = fresh_names(v.name for v in graph.function.values())
        self.constants = {op.result: op for op in graph.function.ops if op.name == "constant"}
        self.reads = {op: tuple(op.operands) for op in graph.ops}
        """What an op read before its operands were replaced by copies."""
        self.viewed = {op.result: op.operands[0] for op in graph.function.ops if is_whole_view(op)}
        """What a view was made of before."""
        self.latest: dict[Value, Value] = {}
        """The copy of an op's result that is read now."""
        self.views: dict[Value, tuple[Value, Value]] = {}
        """By view: what it was last made of, and what was made."""
        self.written: list[Op] = []

    def run(self, op: Op, repeat: int) -> None:
        operands = [self._current(v) for v in self.reads[op]]
        if repeat == 0:
            op.operands = operands
            self.written.append(op)
            self.latest.update((v, v) for v in op.results)
            return
        copy = clone_op(op, operands, self.names)
        copy.attrs[RECOMPUTE] = _level(op, repeat)
        self.written.append(copy)
        self.latest.update(zip(op.results, copy.results))

    def finish(self) -> list[Op]:
        for value in self.graph.function.returns:
            self._current(value)
        return self.written

    def _current(self, value: Value) -> Value:
        """The value to read instead of `value` here."""
        if value in self.constants:
            self.written.append(self.constants.pop(value))
        if value not in self.viewed:
            return self.latest.get(value, value)
        source = self._current(self.viewed[value])
        made_of, view = self.views.get(value, (None, value))
        if made_of is source:
            return view
        assert value.op is not None
        if made_of is None:
            value.op.operands = [source]
            self.written.append(value.op)
        else:
            copy = clone_op(value.op, [source], self.names)
            self.written.append(copy)
            view = copy.result
        self.views[value] = (source, view)
        return view


def _level(op: Op, repeat: int) -> int | tuple[Attr, ...]:
    """Distinguishes the copy from the op, which may be a copy itself, and from other copies."""
    return repeat if RECOMPUTE not in op.attrs else (op.attrs[RECOMPUTE], repeat)
