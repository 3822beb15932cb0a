# SPDX-License-Identifier: Apache-2.0
"""A solution of a problem of recomputation and copies as a function again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memc.ir.clone import clone_op
from memc.ir.core import Alias, Op, Value, fresh_names
from memc.passes.recompute.problem import RecomputeGraph
from memc.solvers.offload import Step

OUT_LANE = "d2h"

IN_LANE = "h2d"


def rewrite(graph: RecomputeGraph, items: Iterable[tuple[Step, int]]) -> None:
    """Make the function of `graph` run its ops and copies in the sequence of `items`; repeats of an op carry `{recompute = i}`.

    What was an operand is then the latest copy of it, so take a `Snapshot` first to go back.
    """
    writer = _Writer(graph)
    runs = [0] * len(graph.units)
    for step, number in items:
        if step is not Step.RUN:
            writer.copy(step, graph.values[number])
            continue
        for op in graph.units[number]:
            writer.run(op, runs[number])
        runs[number] += 1
    graph.function.ops = writer.finish()


class _Writer:
    """Ops in their new sequence; constants and views come in front of their first reader."""

    def __init__(self, graph: RecomputeGraph) -> None:
        self.graph = graph
        self.names = fresh_names(v.name for v in graph.function.values())
        self.constants = {op.result: op for op in graph.function.ops if op.name == "constant"}
        self.reads = {op: tuple(op.operands) for unit in graph.units for op in unit}
        """What an op read before its operands were replaced by copies."""
        self.viewed = graph.views
        """What a view was made of before."""
        self.latest: dict[Value, Value] = {}
        """The copy of an op's result that is read now."""
        self.views: dict[Value, tuple[Value, Value]] = {}
        """What each view was last made of, and the view that was made."""
        self.pending: dict[Value, Value] = {}
        """What the copy of a value that has not ended will be."""
        self.elsewhere: dict[Value, Value] = {}
        """The copy of a value outside the arena."""
        self.written: list[Op] = []

    def run(self, op: Op, repeat: int) -> None:
        operands = [self._current(v) for v in self.reads[op]]
        if repeat == 0:
            op.operands = operands
            self.written.append(op)
            self.latest.update((v, v) for v in op.results)
            return
        copy = clone_op(op, operands, self.names)
        copy.plan = replace(op.plan, recompute=(*op.plan.recompute, repeat))
        self.written.append(copy)
        self.latest.update(zip(op.results, copy.results))
        for value, again in zip(op.results, copy.results):
            if value.alias is not None:
                again.alias = Alias(self.latest[value.root], 0)

    def copy(self, step: Step, value: Value) -> None:
        """A start or an end of a copy of an op's result."""
        if step is Step.OUT_START:
            self.pending[value] = self._op("offload_start", [self.latest[value]], OUT_LANE)
        elif step is Step.OUT_DONE:
            self.elsewhere[value] = self._op("offload_done", [self.pending.pop(value), self.latest[value]])
        elif step is Step.IN_START:
            self.pending[value] = self._op("prefetch_start", [self.elsewhere[value]], IN_LANE)
        elif step is Step.IN_DONE:
            self.latest[value] = self._op("prefetch_done", [self.pending.pop(value), self.elsewhere[value]])

    def _op(self, name: str, operands: list[Value], lane: str | None = None) -> Value:
        attrs = {} if lane is None else {"lane": lane}
        result = Value(next(self.names), operands[0].type)
        self.written.append(Op(name, operands, [result], dict(attrs)))
        return result

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
