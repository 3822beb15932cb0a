# SPDX-License-Identifier: Apache-2.0
"""The lower bound on the time that copies and recomputation add: on a chain that is reckoned by hand, and against the search."""

from __future__ import annotations

import random
from dataclasses import replace

from memc.solvers.exact.offload_bound import MOST_ROWS, added_at_least, moments
from memc.solvers.offload import Lane, Lanes, OffloadProblem, copies_at_least, live_bytes, offload_ladder
from memc.solvers.recompute import RecomputeProblem

MIB = 1 << 20


def pass_and_back(layers: int, *, once: bool, copy: int, cost: int = 1000) -> OffloadProblem:
    """Values 0 to layers - 1, each made from the one before it, and then read in the opposite order by ops of tiny results; all ops
    take `cost`, and a value takes `copy` each way."""
    reads: list[list[int]] = [[] if op == 0 else [op - 1] for op in range(layers)]
    for op in reversed(range(layers)):
        reads.append(sorted({len(reads) - 1, op}))
    ops = len(reads)
    none: list[list[int]] = [[] for _ in range(ops)]
    problem = RecomputeProblem(
        sizes=[MIB if op < layers else 0 for op in range(ops)],
        costs=[cost] * ops,
        once=[once] * ops,
        scratch=[0] * ops,
        reads=reads,
        makes=[[op] for op in range(ops)],
        over=none,
        parts=none,
        until=none,
    )
    lane = Lane(0, copy)
    return OffloadProblem(problem, [op < layers for op in range(ops)], Lanes(lane, lane))


def test_copies_of_a_chain() -> None:
    # At the last of four layers 4 MiB are live. Of those 3 leave in 15,000 ps while 3 ops take 3,000, and come back while 4 others do.
    slow = pass_and_back(4, once=True, copy=5000)
    bound = added_at_least(slow, MIB)
    assert bound is None  # The op that makes value 3 also reads value 2.
    bound = added_at_least(slow, 2 * MIB)
    # 2 MiB are absent there: 10,000 - 3,000 before it, and 10,000 - 4,000 after it. One op later, which reads value 3 alone, as well:
    # 10,000 - 4,000 before and 10,000 - 3,000 after, which is no more together but more after it.
    assert bound is not None and abs(bound - 14_000) <= 2
    assert copies_at_least(slow, 2 * MIB) == 13_000


def test_recomputation_where_it_is_quicker() -> None:
    # Two values are absent at the last layer: each costs one run of its op, of 1,000 ps, where a copy takes 10^6.
    problem = pass_and_back(4, once=False, copy=10**6)
    bound = added_at_least(problem, 2 * MIB)
    assert bound is not None and abs(bound - (2000 - 2 * (3000 / 10**6) * 1000)) < 30


def test_room_adds_nothing() -> None:
    problem = pass_and_back(5, once=False, copy=5000)
    assert added_at_least(problem, 5 * MIB) == 0
    assert added_at_least(pass_and_back(5, once=True, copy=100), 3 * MIB) == 0


def test_few_rows_are_no_stronger() -> None:
    problem = pass_and_back(2 * MOST_ROWS, once=True, copy=3000)
    bound = added_at_least(problem, 10 * MIB)
    assert bound is not None and bound >= copies_at_least(problem, 10 * MIB) > 0
    live = live_bytes(problem.ops)
    looked_at, there_are = moments(problem, 10 * MIB)
    assert there_are == sum(nbytes > 10 * MIB for nbytes in live) > looked_at
    assert (
        looked_at <= MOST_ROWS + 1
        and moments(problem, max(live) - 1) == (2, 2)
        and moments(problem, max(live)) == (0, 0)
    )


def step_problem(seed: int) -> OffloadProblem:
    """A forward pass of random reads, and one back that reads what each made and one value more."""
    chosen = random.Random(seed)
    layers = chosen.randrange(4, 9)
    reads: list[list[int]] = [[]]
    for op in range(1, layers):
        reads.append(sorted({op - 1, chosen.randrange(op)}))
    for op in reversed(range(layers)):
        reads.append(sorted({len(reads) - 1, op, chosen.randrange(layers)}))
    ops = len(reads)
    none: list[list[int]] = [[] for _ in range(ops)]
    problem = RecomputeProblem(
        sizes=[64 * chosen.randrange(1, 9) for _ in range(ops)],
        costs=[chosen.randrange(1, 2000) for _ in range(ops)],
        once=[chosen.random() < 0.3 for _ in range(ops)],
        scratch=[0] * ops,
        reads=reads,
        makes=[[op] for op in range(ops)],
        over=none,
        parts=none,
        until=none,
    )
    lane = Lane(0, 1 << chosen.choice((18, 20, 21)), chosen.choice((1024, 600)))
    return OffloadProblem(problem, [chosen.random() < 0.8 for _ in range(ops)], Lanes(lane, lane))


def test_no_plan_is_below_it() -> None:
    above, tight = 0, 0
    for seed in range(30):
        problem = step_problem(seed)
        for plan in offload_ladder(problem, 0):
            bound = added_at_least(problem, plan.peak, plan.first_runs)
            assert bound is not None and bound <= plan.added, (seed, plan)
            above += bound > 0
            tight += bound > 0.7 * plan.added > 0
    assert above > 50 and tight > 2


def test_without_recomputation_it_is_at_least_the_closed_form() -> None:
    for seed in range(30):
        problem = step_problem(seed)
        fixed = replace(problem, ops=replace(problem.ops, once=[True] * len(problem.ops.costs)))
        for share in (0.9, 0.7):
            budget = int(share * max(plan.peak for plan in offload_ladder(problem, 1 << 40)))
            bound = added_at_least(fixed, budget)
            assert bound is None or bound >= copies_at_least(fixed, budget) * (1 - 1e-5) - 2, (seed, share)
