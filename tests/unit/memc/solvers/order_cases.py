# SPDX-License-Identifier: Apache-2.0
"""Small order problems, and what is true of them by definition."""

from __future__ import annotations

import random
from collections.abc import Iterator

from memc.solvers.order import OrderProblem


def random_order_problem(seed: int, max_ops: int = 8) -> OrderProblem:
    """Storages shared by several ops, some kept, some of no bytes; ops with scratch and ops that touch nothing."""
    rng = random.Random(seed)
    ops = rng.randint(1, max_ops)
    density = rng.choice([0.1, 0.25, 0.5])
    after = [[a for a in range(op) if rng.random() < density] for op in range(ops)]
    storages = rng.randint(1, 2 * ops)
    sizes = [rng.choice([0, 1, 2, 3, 5, 8, 13, 40]) for _ in range(storages)]
    touches: list[list[int]] = [[] for _ in range(ops)]
    for storage in range(storages):
        for op in rng.sample(range(ops), rng.randint(1, min(ops, 3))):
            touches[op].append(storage)
    kept = frozenset(s for s in range(storages) if rng.random() < 0.15)
    scratch = [rng.choice([0, 0, 0, 4, 9]) for _ in range(ops)]
    return OrderProblem(sizes, touches, after, kept, scratch)


def live_at(problem: OrderProblem, done: frozenset[int], op: int) -> int:
    """Bytes live while `op` runs, once exactly the ops in `done` have run."""
    started = {s for o in (*done, op) for s in problem.touches[o]}
    open_ = {s for o in range(len(problem.touches)) if o not in done for s in problem.touches[o]}
    return sum(problem.sizes[s] for s in started & (open_ | problem.kept)) + problem.scratch[op]


def closed_sets(problem: OrderProblem) -> Iterator[frozenset[int]]:
    """All sets of ops that can have run at some moment of some order."""
    ops = len(problem.touches)
    for bits in range(1 << ops):
        done = frozenset(op for op in range(ops) if bits >> op & 1)
        if all(done.issuperset(problem.after[op]) for op in done):
            yield done


def lowest_peak(problem: OrderProblem) -> int:
    """The optimum, by dynamic programming over all closed sets."""
    ops = range(len(problem.touches))
    best = {frozenset[int](): 0}
    for done in sorted(closed_sets(problem), key=len):
        for op in ops:
            if op not in done and done.issuperset(problem.after[op]):
                peak = max(best[done], live_at(problem, done, op))
                following = done | {op}
                best[following] = min(best.get(following, peak), peak)
    return best[frozenset(ops)]
