# SPDX-License-Identifier: Apache-2.0
"""Dependencies between ops that follow from which bytes of shared storage each reads and writes.

This is the one definition of them, for the IR (`memc.passes.order.problem`) and for foreign graphs
(`memc.planning.graph_problems`); they differ in what they know of the accesses: parts of storages, or whole ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from memc.ir.interval_index import IntervalIndex

Part = tuple[int, int]
"""Bytes of a storage, half-open."""

WHOLE: Part = (0, 1)
"""All of a storage, where it is never accessed in parts."""


@dataclass(frozen=True)
class Accesses:
    """What one op does."""

    after: Sequence[int]
    """Ops, all earlier, that make what it takes."""
    reads: Sequence[tuple[Hashable, Part]]
    """Storages, and their bytes."""
    writes: Sequence[tuple[Hashable, Part]]
    effects: bool = False
    """Whether it does more than write, so that it keeps its place among the ops that do."""


@dataclass
class _Storage:
    """Who has read and written which bytes so far; what a later write covers is dropped."""

    reads: IntervalIndex[int] = field(default_factory=IntervalIndex)
    writes: IntervalIndex[int] = field(default_factory=IntervalIndex)

    def read(self, part: Part, index: int) -> list[int]:
        """Note that op `index` reads `part`; the ops that wrote it."""
        self.reads.add(*part, index)
        return [self.writes.items[number][2] for number in self.writes.over(*part)]

    def write(self, part: Part, index: int) -> list[int]:
        """Note that op `index` writes `part`; the ops that read or wrote it."""
        found: list[int] = []
        for accesses in (self.reads, self.writes):
            for number in accesses.over(*part):
                low, high, op = accesses.items[number]
                found.append(op)
                if part[0] <= low and high <= part[1]:
                    accesses.remove(number)
        self.writes.add(*part, index)
        return found


def dependencies(ops: Iterable[Accesses]) -> list[list[int]]:
    """Of each op in the given order, the earlier ones that it must follow, without repeats.

    These are the ops that make what it takes; every op that wrote bytes which it reads or writes, and every one that read
    bytes which it writes; and if it has effects, the op with effects before it. An op that another one on the list must
    follow anyway may be left out.
    """
    storages: dict[Hashable, _Storage] = {}
    last_effect: int | None = None
    rows: list[list[int]] = []
    for index, op in enumerate(ops):
        after = dict.fromkeys(op.after)
        for storage, part in op.reads:
            after.update(dict.fromkeys(storages.setdefault(storage, _Storage()).read(part, index)))
        for storage, part in op.writes:
            after.update(dict.fromkeys(storages.setdefault(storage, _Storage()).write(part, index)))
        if op.effects:
            if last_effect is not None:
                after[last_effect] = None
            last_effect = index
        after.pop(index, None)
        rows.append(list(after))
    return rows
