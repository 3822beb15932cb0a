# SPDX-License-Identifier: Apache-2.0
"""Weights that are copied in for the ops that read them: a function as a problem of which, and a plan as a function again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from memc.ir.clone import clone_op
from memc.ir.copies import is_done, is_start, start_of
from memc.ir.core import Function, Op, Role, Value, fresh_names
from memc.ir.liveness import lifetimes, live_bytes
from memc.ir.op_queries import view_offset
from memc.ir.ops.shared.op_def import lookup
from memc.ir.sizes import align
from memc.ir.snapshot import is_unplaced
from memc.passes.placement.alias_plan import plan_aliases
from memc.passes.placement.in_place import applied
from memc.passes.recompute.choices import Copies
from memc.passes.recompute.rewrite import IN_LANE
from memc.solvers.stream_weights import Item, StreamProblem, Window


@dataclass
class Reads:
    """Who reads a weight."""

    uses: list[int] = field(default_factory=list)
    """The ops that read it, also through views, by their numbers in the function."""
    views: list[Op] = field(default_factory=list)
    """Views of it, and of those."""


@dataclass(frozen=True)
class WeightStreams:
    """A function's weights that may be streamed."""

    function: Function
    reads: dict[Value, Reads]
    """By weight."""

    @staticmethod
    def of(function: Function, least: int) -> WeightStreams:
        """The weights of at least `least` bytes, and 1, that ops of the function read which memc knows, and which are not returned."""
        weights = [p for p in function.params_of(Role.WEIGHT) if p.type.nbytes >= max(1, least)]
        of_value: dict[Value, Value] = {p: p for p in weights}
        """The weight that a value is, or is a view of."""
        found = {p: Reads() for p in weights}
        held: set[Value | None] = set()
        for index, op in enumerate(function.ops):
            read = {of_value[v]: None for v in op.operands if v in of_value}
            if len(op.operands) == 1 and read and view_offset(op) is not None:
                (weight,) = read
                of_value[op.result] = weight
                found[weight].views.append(op)
                continue
            for weight in read:
                found[weight].uses.append(index)
            if read and op.region is None and lookup(op.name) is None:
                held.update(read)  # It might write to it.
        held.update(of_value.get(v) for v in function.returns)
        reads = {weight: its for weight, its in found.items() if its.uses and weight not in held}
        return WeightStreams(function, reads)

    def problem(self, cost: Callable[[Op], int], copies: Copies, elsewhere: int, alignment: int) -> StreamProblem:
        """The problem of which to stream. `cost`: picoseconds of an op; `elsewhere`: bytes that copies of the function take of the host
        budget already."""
        function = self.function
        plan = applied(function, plan_aliases(function, alignment)) if is_unplaced(function) else nullcontext()
        with plan:
            live = live_bytes(lifetimes(function), len(function.ops), alignment)
        items = list(_items(function, cost))
        return StreamProblem(
            [kind for kind, _ in items],
            [number for _, number in items],
            live,
            [align(weight.type.nbytes, alignment) for weight in self.reads],
            [its.uses for its in self.reads.values()],
            copies.lanes,
            None if copies.host_budget is None else max(0, copies.host_budget - elsewhere),
        )

    def follow(self, windows: Sequence[Window]) -> None:
        """Have the function copy weights in as `windows` say. Their places are numbers of ops in the function as it is."""
        function, weights = self.function, list(self.reads)
        names = fresh_names(v.name for v in function.values())
        starts: dict[int, list[Op]] = {}
        """What comes in front of each op, first these,"""
        dones: dict[int, list[Op]] = {}
        """and then these."""
        replaced: dict[int, dict[Value, Value]] = {}
        """What each op reads instead of values."""
        dropped = {op for window in windows for op in self.reads[weights[window.weight]].views}
        for window in windows:
            weight = weights[window.weight]
            pending, copy = (Value(next(names), weight.type) for _ in range(2))
            start = Op("prefetch_start", [weight], [pending], {"lane": IN_LANE})
            starts.setdefault(window.start, []).append(start)
            there = dones.setdefault(window.wait, [])
            there.append(Op("prefetch_done", [pending, weight], [copy]))
            its = self.reads[weight]
            uses = [use for use in its.uses if window.first <= use <= window.last]
            now = {weight: copy}
            for view in _read_views(its.views, (function.ops[use] for use in uses)):
                again = clone_op(view, [now[view.operands[0]]], names)
                there.append(again)
                now[view.result] = again.result
            for use in uses:
                replaced.setdefault(use, {}).update(now)
        written: list[Op] = []
        for index, op in enumerate(function.ops):
            written += [*starts.get(index, ()), *dones.get(index, ())]
            if op in dropped:
                continue
            if index in replaced:
                op.operands = [replaced[index].get(v, v) for v in op.operands]
            written.append(op)
        function.ops = written


def _read_views(views: Sequence[Op], ops: Iterable[Op]) -> list[Op]:
    """Those of views, and of views of them, that ops read; in their order."""
    read = {v for op in ops for v in op.operands}
    found = []
    for view in reversed(views):
        if view.result in read:
            read.update(view.operands)
            found.append(view)
    return found[::-1]


def _items(function: Function, cost: Callable[[Op], int]) -> Iterator[tuple[Item, int]]:
    numbers = {op: index for index, op in enumerate(function.ops)}
    for op in function.ops:
        out = op.name.startswith("offload")
        if is_start(op):
            yield Item.OUT_START if out else Item.IN_START, op.operands[0].type.nbytes
        elif is_done(op):
            start = start_of(op)
            assert start is not None
            yield Item.OUT_DONE if out else Item.IN_DONE, numbers[start]
        else:
            yield Item.RUN, cost(op)
