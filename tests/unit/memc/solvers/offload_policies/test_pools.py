# SPDX-License-Identifier: Apache-2.0
"""What schedules take in the pools of published systems, on requests whose addresses can be followed by hand."""

from __future__ import annotations

import random

from memc.solvers.offload import Lane, Lanes, OffloadProblem, Step
from memc.solvers.offload_policies.layers import Kind, Layer, LayeredProblem
from memc.solvers.offload_policies.pools import GRANULE, Group, best_fit, events, group_of, grouped_by_mobility
from memc.solvers.recompute import RecomputeProblem, measure_sequence


def problem_of(
    sizes: list[int], reads: list[list[int]], forward: int, kinds: dict[int, Kind] | None = None, over: bool = False
) -> LayeredProblem:
    """Ops of one result each, of so many granules, each a layer."""
    ops = len(sizes)
    none: list[list[int]] = [[] for _ in range(ops)]
    taken = [[v for v in values if sizes[v] == sizes[op]] for op, values in enumerate(reads)] if over else none
    problem = RecomputeProblem(
        sizes=[GRANULE * size for size in sizes],
        costs=[1] * ops,
        once=[False] * ops,
        scratch=[0] * ops,
        reads=reads,
        makes=[[op] for op in range(ops)],
        over=taken,
        parts=none,
        until=none,
    )
    layers = [Layer((kinds or {}).get(op, Kind.CONV), (op,)) for op in range(ops)]
    return LayeredProblem(OffloadProblem(problem, [True] * ops, Lanes(Lane(0, 1), Lane(0, 1))), layers, forward)


def runs(problem: LayeredProblem) -> list[tuple[Step, int]]:
    return [(Step.RUN, op) for op in range(len(problem.layer_of))]


# Values 0, 1 and 2 of 4, 1 and 5 granules lie side by side. 0 dies at op 2, and 3, of 6, does not fit where it was:
#
#      0   4 5    10     16
#      |000|1|22222|333333|
FORK = problem_of([4, 1, 5, 6, 1], [[], [], [0], [2], [1, 3]], forward=5)


def test_best_fit_leaves_gaps_that_are_too_small() -> None:
    assert best_fit(FORK, runs(FORK)) == 16 * GRANULE
    assert measure_sequence(FORK.problem.ops, range(5)).peak == 12 * GRANULE


def test_mobility_keeps_what_waits_apart() -> None:
    # 0 and 1, which the next op does not read, grow from the high end; 2 and 3 from the low one, and 4 over what was 2.
    groups = [group_of(FORK, event) for event in events(FORK, runs(FORK)) if not event.releases]
    assert groups == [Group.TEMPORARY, Group.TEMPORARY, Group.MOVABLE, Group.MOVABLE, Group.MOVABLE]
    assert grouped_by_mobility(FORK, runs(FORK)) == 16 * GRANULE
    kinds = {0: Kind.DENSE}
    assert (
        grouped_by_mobility(problem_of([4, 1, 5, 6, 1], FORK.problem.ops.reads, 5, kinds), runs(FORK)) == 16 * GRANULE
    )


def test_results_take_over_what_dies() -> None:
    reads: list[list[int]] = [[], [0], [1]]
    assert best_fit(problem_of([4, 4, 4], reads, 3), runs(problem_of([4, 4, 4], reads, 3))) == 8 * GRANULE
    inside = problem_of([4, 4, 4], reads, 3, over=True)
    assert best_fit(inside, runs(inside)) == 4 * GRANULE


def test_copies_release_and_request() -> None:
    problem = problem_of([4, 4, 4, 1], [[], [0], [1], [0, 2]], forward=2)
    copied = [(Step.RUN, 0), (Step.RUN, 1), (Step.OUT_START, 0), (Step.OUT_DONE, 0), (Step.RUN, 2)]
    copied += [(Step.IN_START, 0), (Step.IN_DONE, 0), (Step.RUN, 3)]
    found = [(event.value, event.releases) for event in events(problem, copied)]
    assert found == [(0, False), (1, False), (0, True), (2, False), (1, True), (0, False), (3, False)] + [
        (0, True),
        (2, True),
        (3, True),
    ]
    assert best_fit(problem, copied) == 9 * GRANULE


def test_no_pool_is_below_what_is_live() -> None:
    for seed in range(50):
        chosen = random.Random(seed)
        sizes = [chosen.randrange(1, 9) for _ in range(12)]
        reads = [sorted(chosen.sample(range(op), min(op, 2))) for op in range(12)]
        kinds = {op: chosen.choice(list(Kind)) for op in range(12)}
        problem = problem_of(sizes, reads, chosen.randrange(1, 12), kinds)
        live = measure_sequence(problem.problem.ops, range(12)).peak
        assert live <= best_fit(problem, runs(problem)) <= sum(sizes) * GRANULE
        assert live <= grouped_by_mobility(problem, runs(problem)) <= sum(sizes) * GRANULE
