# SPDX-License-Identifier: Apache-2.0
"""Recomputation by stages: stage i holds the first run of op i and, before it, what is recomputed since that of op i - 1.

So a sequence is a set of ops for each stage, which is what `recompute_program.py` decides, and an order of each set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from memc.solvers.recompute import RecomputeProblem

MOST_STATES = 20_000
"""Sets of ops left to run, in one stage, beyond which no order is sought."""


@dataclass(frozen=True)
class Links:
    """Who makes and reads what."""

    maker: Mapping[int, int]
    """The op that makes each value."""
    readers: Mapping[int, Sequence[int]]
    """The ops that read each value, ascending."""

    @staticmethod
    def of(problem: RecomputeProblem) -> Links:
        maker = {value: op for op, values in enumerate(problem.makes) for value in values}
        readers: dict[int, list[int]] = {value: [] for value in maker}
        for op, values in enumerate(problem.reads):
            for value in values:
                readers[value].append(op)
        return Links(maker, readers)


@dataclass(frozen=True)
class Stages:
    """Which ops are recomputed in each stage, and which values are kept from stage to stage."""

    again: Sequence[frozenset[int]]
    """The ops that are recomputed in each stage."""
    kept: Sequence[frozenset[int]]
    """The values with bytes that are live when each stage (or the end) begins and are read in it or later."""

    @staticmethod
    def of_sequence(problem: RecomputeProblem, sequence: Sequence[int]) -> Stages:
        """Those of a whole sequence, orders and repeats within a stage forgotten."""
        ops = len(problem.costs)
        again: list[set[int]] = [set() for _ in range(ops)]
        kept: list[set[int]] = [set() for _ in range(ops + 1)]
        made: dict[int, int] = {}
        stage = 0
        for op in sequence:
            if op < stage:
                again[stage].add(op)
            for value in problem.reads[op]:
                if problem.sizes[value]:
                    for later in range(made[value] + 1, stage + 1):
                        kept[later].add(value)
            made.update((value, stage) for value in problem.makes[op])
            stage += op == stage
        return Stages([frozenset(a) for a in again], [frozenset(k) for k in kept])

    def cleaned(self, problem: RecomputeProblem) -> Stages:
        """The same stages without runs and kept values that nothing reads."""
        ops = len(problem.costs)
        again, kept = list(self.again), list(self.kept)
        kept[ops] = frozenset()
        for stage in reversed(range(ops)):
            wanted = {v for v in problem.reads[stage] if problem.sizes[v]} | kept[stage + 1] - set(problem.makes[stage])
            runs: set[int] = set()
            for op in sorted(again[stage], reverse=True):
                if wanted.intersection(problem.makes[op]):
                    runs.add(op)
                    wanted -= set(problem.makes[op]) - kept[stage]
                    wanted.update(v for v in problem.reads[op] if problem.sizes[v])
            again[stage], kept[stage] = frozenset(runs), frozenset(wanted & kept[stage])
        return Stages(again, kept)


@dataclass
class StageOrder:
    """Orders of the ops that are recomputed in one stage, within a limit of bytes."""

    problem: RecomputeProblem
    limit: int
    stage: int
    kept: frozenset[int]
    """Values live when the stage begins."""
    after: frozenset[int]
    """Values live when the next one begins."""
    failed: set[frozenset[int]] = field(default_factory=set)

    def find(self, ops: Collection[int]) -> Optional[list[int]]:
        """An order, each op once, or None if there is none or too many sets of ops left were tried."""
        found: list[int] = []
        return found[::-1] if self._go(frozenset(ops), found) else None

    def _go(self, left: frozenset[int], found: list[int]) -> bool:
        """Whether the ops left can run, from what the others made; `found` takes them from the last on."""
        if not left:
            return True
        if left in self.failed or len(self.failed) > MOST_STATES:
            return False
        missing = {v for op in left for v in self.problem.makes[op] if self.problem.sizes[v]} - self.kept
        for op in sorted(left):
            if missing.isdisjoint(self.problem.reads[op]) and self._bytes(op, left) <= self.limit:
                if self._go(left - {op}, found):
                    found.append(op)
                    return True
        self.failed.add(left)
        return False

    def _bytes(self, op: int, left: frozenset[int]) -> int:
        """Live while `op` runs, of which and of the others left the results are not there yet, but for kept ones."""
        problem, makes = self.problem, self.problem.makes
        reads = {v for other in left for v in problem.reads[other]}
        unmade = {v for other in left for v in makes[other]} - self.kept
        end = self.after.union(problem.reads[self.stage]).difference(makes[self.stage])
        live = ((reads | end) - unmade).union(makes[op])
        later = end.union(v for other in left if other != op for v in problem.reads[other])
        taken = next((problem.sizes[v] for v in problem.over[op] if v not in later), 0)
        taken += sum(problem.sizes[v] for v in problem.parts[op] if v not in later)
        return sum(problem.sizes[v] for v in live) - taken + problem.scratch[op]
