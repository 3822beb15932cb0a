# SPDX-License-Identifier: Apache-2.0
"""When the ops of a function with copies run, in the cost model.

Ops run one after another; a copy begins after its start, when its lane has ended the copies before it; what follows its done waits for
its end; while both lanes are busy, each has its shared speed; starts, dones and copies beside them take ops what the lanes say: in
programs once where several copies start, or are waited for, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memc.ir.copies import is_done, is_start, start_of
from memc.ir.core import Op
from memc.solvers.lane_clock import LaneClock, Way
from memc.solvers.offload import Lanes


@dataclass(frozen=True)
class LaneTimes:
    """Times in picoseconds."""

    begins: list[int]
    """Of each op, copies too: when it is reached; and the end of the last."""
    busy: dict[Way, list[tuple[int, int]]]
    """When each copy of a lane moves its bytes."""
    computing: int
    """While ops run, by their costs."""

    @property
    def makespan(self) -> int:
        """The end of the last op and the last wait."""
        return self.begins[-1]

    @staticmethod
    def of(ops: Sequence[Op], cost: Callable[[Op], int], lanes: Lanes, grouped: bool = True) -> LaneTimes:
        """Those of ops in a sequence. `cost`: picoseconds of an op that is no copy. `grouped`: starts and waits of one lane between two
        ops take ops time once, as programs have it; the search for values counts each."""
        clock = LaneClock(lanes)
        number: dict[Op, tuple[Way, int]] = {}
        begins: list[int] = []
        forked: set[Way] = set()
        joins = joins_of(ops, cost) if grouped else None
        computing = 0
        for op in ops:
            begins.append(clock.now)
            if is_start(op):
                way = way_of(op)
                number[op] = way, clock.issue(way, op.operands[0].type.nbytes, forked=way in forked)
                if grouped:
                    forked.add(way)
            elif is_done(op):
                start = start_of(op)
                assert start is not None
                if joins is None or op in joins:
                    clock.wait(*number[start])
                    forked.clear()
            elif duration := cost(op):
                clock.run(duration)
                computing += duration
                forked.clear()
        begins.append(clock.now)
        busy: dict[Way, list[tuple[int, int]]] = {
            way: [(copy.begin, copy.end) for copy in queue] for way, queue in clock.queues.items()
        }
        return LaneTimes(begins, busy, computing)


def way_of(start: Op) -> Way:
    """The direction of the copy that an op begins."""
    return "out" if start.name == "offload_start" else "in"


def joins_of(ops: Sequence[Op], cost: Callable[[Op], int]) -> set[Op]:
    """The dones that ops wait at: of those of one lane between two ops, the last copy's."""
    order = {op: index for index, op in enumerate(ops) if is_start(op)}
    waited: dict[str, int] = {}
    found = set()
    for op in reversed(ops):
        if is_done(op):
            start = start_of(op)
            assert start is not None
            if order[start] > waited.get(start.name, -1):
                found.add(op)
                waited[start.name] = order[start]
        elif is_start(op) or cost(op):
            waited.clear()
    return found
