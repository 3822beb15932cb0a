# SPDX-License-Identifier: Apache-2.0
"""A lower bound on the peak of every sequence of runs, whatever is recomputed and in whichever order."""

from __future__ import annotations

from dataclasses import dataclass, field

from memc.solvers.recompute import RecomputeProblem

WIDEST = 8
"""Values live together of which each may have been made last; of more, no further look back is taken."""


def least_possible(problem: RecomputeProblem, depth: int = 3) -> int:
    """Bytes that are live at some moment of every sequence.

    While an op runs, what it reads and makes is live. Of what it reads, one value was made last, and then the others
    were live already, besides what its own op read and made; and so on, `depth` ops back. The least over which value
    came last, the most over all ops.
    """
    bound = _Bound(problem)
    return max((bound.of_run(op, frozenset(), depth) for op in range(len(problem.costs))), default=0)


@dataclass
class _Bound:
    problem: RecomputeProblem
    maker: dict[int, int] = field(default_factory=dict)
    known: dict[tuple[frozenset[int], int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.maker = {value: op for op, values in enumerate(self.problem.makes) for value in values}

    def of_run(self, op: int, held: frozenset[int], depth: int) -> int:
        """Bytes reached by the time `op` has run while `held`, which it does not make, is live."""
        sizes = self.problem.sizes
        read = frozenset(v for v in self.problem.reads[op] if sizes[v])
        live = held | read | frozenset(self.problem.makes[op])
        taken = max((sizes[v] for v in self.problem.over[op] if v not in held), default=0)
        taken += sum(sizes[v] for v in self.problem.parts[op] if v not in held)
        during = sum(sizes[v] for v in live) - taken + self.problem.scratch[op]
        return max(during, self.of_live(held | read, depth))

    def of_live(self, live: frozenset[int], depth: int) -> int:
        """Bytes reached by the time all of `live` has been made."""
        now = sum(self.problem.sizes[v] for v in live)
        if depth == 0 or not live or len(live) > WIDEST:
            return now
        key = (live, depth)
        if key not in self.known:
            last = {self.maker[v] for v in live}
            least = min(self.of_run(op, live - frozenset(self.problem.makes[op]), depth - 1) for op in last)
            self.known[key] = max(now, least)
        return self.known[key]
