# SPDX-License-Identifier: Apache-2.0
"""The copies of states between the host and their windows in the arena, written into a function."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Alias, Function, Op, Value, fresh_names
from memc.ir.op_queries import assigned_state
from memc.passes.offload.state_windows import Window
from memc.passes.recompute.rewrite import IN_LANE, OUT_LANE


def insert_copies(function: Function, windows: Sequence[Window]) -> None:
    """Have the states of `windows`, whose numbers are of the function's ops, lie on the host, and be read and written in the arena.
    Those that stay lie in the arena while the step begins and ends, and on the host between."""
    writer = _Writer(function)
    function.ops = writer.written(windows)
    function.returns = [writer.done.get(value, value) for value in function.returns]


class _Writer:
    def __init__(self, function: Function) -> None:
        self.ops = function.ops
        self.names = fresh_names(value.name for value in function.values())
        self.done: dict[Value, Value] = {}
        """What is returned in place of a state's new content."""
        self.left: dict[Value, Value] = {}
        """The copies on the host of states that stay in the arena between steps."""
        self.starts: dict[int, list[Op]] = {}
        """Of copies back, by the op that they come after."""

    def written(self, windows: Sequence[Window]) -> list[Op]:
        at: dict[int, list[Op]] = {}
        """Before each op, and at the end: waits for copies back first, then the starts of copies in, then the waits for these."""
        for window in sorted(windows, key=lambda window: window.end):
            if window.written and window.left is None:
                at.setdefault(window.end, []).extend(self._back(window))
        self._leave([window for window in windows if window.left is not None], at)
        inward = {id(window): self._in(window) for window in windows}
        for window in windows:
            at.setdefault(window.begin, []).extend(start for start, _ in inward[id(window)])
        for window in windows:
            at.setdefault(window.first, []).extend(done for _, done in inward[id(window)])
            own = {state: done.result for state, (_, done) in zip(window.states, inward[id(window)])}
            for op in self.ops[window.first : window.last]:
                op.operands = [own.get(value, value) for value in op.operands]
        found: list[Op] = []
        for index in range(len(self.ops) + 1):
            found += [*self.starts.get(index, ()), *at.get(index, ()), *self.ops[index : index + 1]]
        return found

    def _in(self, window: Window) -> list[tuple[Op, Op]]:
        found = []
        for state in window.states:
            source, alias = (state, None) if window.left is None else (self.left[state], Alias(state, 0))
            start = Op("prefetch_start", [source], [self._value(state, alias)], {"lane": IN_LANE})
            found.append((start, Op("prefetch_done", [start.result, source], [self._value(state, alias)])))
        return found

    def _leave(self, windows: Sequence[Window], at: dict[int, list[Op]]) -> None:
        """The copies out, at the beginning, of states that stay in the arena at the end."""
        starts: list[Op] = []
        for window in windows:
            assert window.left is not None
            for state in window.states:
                starts.append(Op("offload_start", [state], [self._value(state)], {"lane": OUT_LANE}))
                done = Op("offload_done", [starts[-1].result, state], [self._value(state)])
                self.left[state] = done.result
                at.setdefault(window.left, []).append(done)
        at[0] = [*starts, *at.get(0, ())]

    def _back(self, window: Window) -> list[Op]:
        """The waits for the copies back, whose starts are noted."""
        new, after = {}, {}
        for index, op in enumerate(self.ops[window.first : window.last], window.first + 1):
            if (found := assigned_state(op)) is not None:
                new[found[1]], after[found[1]] = op.result, index
        dones = []
        for state in window.states:
            pending, done = self._value(state, Alias(state, 0)), self._value(state, Alias(state, 0))
            start = Op("offload_start", [new[state]], [pending], {"lane": OUT_LANE})
            self.starts.setdefault(after[state] if window.at_once else window.last, []).append(start)
            dones.append(Op("offload_done", [pending, new[state]], [done]))
            self.done[new[state]] = done
        return dones

    def _value(self, state: Value, alias: Alias | None = None) -> Value:
        return Value(next(self.names), state.type, alias=alias)
