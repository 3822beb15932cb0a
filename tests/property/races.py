# SPDX-License-Identifier: Apache-2.0
"""The definition of a race between copies and other ops: all pairs of accesses, ordered where a search finds a way from one to the
other. Quadratic, and without intervals, clocks or pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memc.ir.core import Function, Op, Role, Value
from memc.ir.verify.aliases import ties_of

Node = tuple[int, int, str]
"""A run, the number of an op, and `op` or `copy`."""


@dataclass
class Definition:
    """The accesses of two runs of a function, and which node comes before which."""

    function: Function
    nodes: list[Node] = field(default_factory=list)
    after: dict[Node, list[Node]] = field(default_factory=dict)
    """What directly follows a node."""
    accesses: list[tuple[Node, object, int, int, bool]] = field(default_factory=list)
    """Node, space, begin, end, and whether it writes."""
    wrong: bool = False
    """Whether some op finds other bytes than its operand's, if each copy runs at its start."""

    def is_bad(self) -> bool:
        """Whether the function may give wrong results."""
        self._collect()
        return self.wrong or self._unfinished() or self._races()

    def _collect(self) -> None:
        memory: dict[object, npt.NDArray[np.int64]] = {}
        ids: dict[tuple[Value, int], int] = {}
        states: dict[Value, npt.NDArray[np.int64]] = {}
        held: dict[Value, npt.NDArray[np.int64]] = {}
        latest: dict[str, Node] = {}
        previous: Node | None = None
        fresh = {v.root for v in self.function.returns if v.root.op is not None}
        fresh |= {p for p in self.function.params if p.role is Role.INPUT}

        def new(value: Value, run: int) -> npt.NDArray[np.int64]:
            number = ids.setdefault((value, run), len(ids) + 1)
            return number * 2**32 + np.arange(value.type.nbytes)

        def place(value: Value) -> tuple[object, int, int]:
            root, begin = value.root, value.offset_in_root
            placed = root.placement if root not in fresh else None
            begin += placed.offset if placed else 0
            return placed.space if placed else root, begin, begin + value.type.nbytes

        def bytes_of(value: Value) -> npt.NDArray[np.int64]:
            space, begin, end = place(value)
            known = memory.get(space, np.zeros(0, np.int64))
            if len(known) < end:
                known = memory[space] = np.concatenate([known, np.zeros(end - len(known), np.int64)])
            return known[begin:end]

        def touch(node: Node, value: Value, writes: bool) -> None:
            if value.type.nbytes:
                self.accesses.append((node, *place(value), writes))

        for run in range(2):
            for root in fresh:
                memory.pop(root, None)
            for param in self.function.params:
                if param in states:
                    held[param] = states[param]
                elif run == 0 or param in fresh:
                    held[param] = new(param, run)
                    bytes_of(param)[:] = held[param]
            for index, op in enumerate(self.function.ops):
                node = (run, index, "op")
                self._link(previous, node)
                previous = node
                if op.name.endswith("_done"):
                    self._link((run, self._start(op), "copy"), node)
                    if op.operands[0] not in held:
                        self.wrong = True
                        return
                    held[op.results[0]] = held[op.operands[0]]
                    continue
                runs = node
                if op.name.endswith("_start"):
                    runs = (run, index, "copy")
                    self._link(node, runs)
                    self._link(latest.get(str(op.attrs["lane"])), runs)
                    latest[str(op.attrs["lane"])] = runs
                for value in op.operands:
                    source = _source(value)
                    touch(runs, value, False)
                    if source not in held or not np.array_equal(bytes_of(value), held[source]):
                        self.wrong = True
                        return
                self._results(run, op, runs, held, touch, bytes_of, new)
            for value in self.function.returns:
                if value not in held or not np.array_equal(bytes_of(value), held[value]):
                    self.wrong = True
                    return
                if value.root.role is Role.STATE:
                    states[value.root] = held[value]
            end = (run, len(self.function.ops), "op")
            self._link(previous, end)
            previous = end
            for value in self.function.returns:
                touch(end, value, False)

    def _results(self, run, op, runs, held, touch, bytes_of, new) -> None:  # type: ignore[no-untyped-def]
        ties = ties_of(op)
        for number, value in enumerate(op.results):
            if number == 0 and ties.view:
                held[value] = bytes_of(value).copy()
                continue
            held[value] = new(value, run)
            kept = np.zeros(value.type.nbytes, bool)
            for k in ties.slices if number == 0 else ():
                begin = op.operands[k].offset_in_root - value.offset_in_root
                kept[begin : begin + op.operands[k].type.nbytes] = True
                held[value][begin : begin + op.operands[k].type.nbytes] = held[_source(op.operands[k])]
            if not kept.any():
                touch(runs, value, True)
            else:
                edges = np.flatnonzero(np.diff(np.concatenate([[True], kept, [True]]).astype(int)))
                space, low, _ = self._place_of(value)
                for begin, end in zip(edges[::2], edges[1::2]):
                    self.accesses.append((runs, space, low + int(begin), low + int(end), True))
            bytes_of(value)[:] = held[value]
        if op.workspace is not None:
            touch(runs, op.workspace, True)
            held[op.workspace] = new(op.workspace, run)
            bytes_of(op.workspace)[:] = held[op.workspace]

    def _place_of(self, value: Value) -> tuple[object, int, int]:
        root, begin = value.root, value.offset_in_root
        given = any(v.root is root for v in self.function.returns) and root.op is not None
        placed = None if given else root.placement
        return (placed.space if placed else root), begin + (placed.offset if placed else 0), 0

    def _start(self, done: Op) -> int:
        start = done.operands[0].op
        assert start is not None
        return self.function.ops.index(start)

    def _link(self, one: Node | None, other: Node) -> None:
        for node in (one, other):
            if node is not None and node not in self.after:
                self.after[node] = []
                self.nodes.append(node)
        if one is not None:
            self.after[one].append(other)

    def _reached(self, start: Node) -> set[Node]:
        seen, stack = {start}, [start]
        while stack:
            for node in self.after[stack.pop()]:
                if node not in seen:
                    seen.add(node)
                    stack.append(node)
        return seen

    def _unfinished(self) -> bool:
        """Whether a copy of the first run may go on after it."""
        end = (0, len(self.function.ops), "op")
        return any(node[0] == 0 and node[2] == "copy" and end not in self._reached(node) for node in self.nodes)

    def _races(self) -> bool:
        copies = [access for access in self.accesses if access[0][2] == "copy"]
        reached = {node: self._reached(node) for node in {access[0] for access in self.accesses}}
        for node, space, begin, end, writes in copies:
            for other, where, low, high, changes in self.accesses:
                if not (writes or changes) or space != where or max(begin, low) >= min(end, high):
                    continue
                if node == other:
                    if writes != changes:
                        return True  # A copy onto its own source.
                    continue
                if other not in reached[node] and node not in reached[other]:
                    return True
        return False


def _source(value: Value) -> Value:
    """What holds a value's bytes: of what waits for a copy, what the copy writes."""
    return value.op.operands[0] if value.op is not None and value.op.name.endswith("_done") else value
