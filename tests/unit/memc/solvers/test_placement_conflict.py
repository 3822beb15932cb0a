# SPDX-License-Identifier: Apache-2.0
"""Buffers that do not fit, against exhaustive search: the set alone does not fit, each proper subset does."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from memc.solvers.placement import Buffer, Conflict, Problem, find_conflict, lower_bound

from .test_placement_gaps import fits, least_peak, tight
from .test_placement_search import fits as fits_plain
from .test_placement_search import least_peak as least_plain_peak
from .test_placement_search import random_problem


def part(problem: Problem, indices: tuple[int, ...]) -> Problem:
    return replace(problem, buffers=[problem.buffers[i] for i in indices])


def assert_minimal(problem: Problem, conflict: Conflict | None) -> None:
    assert conflict is not None and conflict.proven and conflict.minimal
    assert not fits(part(problem, conflict.buffers), problem.capacity)
    for left_out in conflict.buffers:
        rest = tuple(i for i in conflict.buffers if i != left_out)
        assert fits(part(problem, rest), problem.capacity)


@pytest.mark.parametrize("block", range(4))
def test_conflicts_are_infeasible_and_minimal(block: int) -> None:
    """One byte less than the optimum: above some live sets' bytes, below those of others."""
    kinds = set()
    for seed in range(15 * block, 15 * (block + 1)):
        problem = tight(seed)
        problem = replace(problem, capacity=least_peak(problem) - 1)
        conflict = find_conflict(problem)
        assert_minimal(problem, conflict)
        assert conflict is not None
        kinds.add(conflict.moment is None)
        if conflict.moment is not None:
            chosen = part(problem, conflict.buffers)
            live = [
                b
                for b in chosen.buffers
                if any(lo <= conflict.moment < up for lo, up in b.lives or ((b.lower, b.upper),))
            ]
            assert live == chosen.buffers and lower_bound(chosen) > problem.capacity
    assert kinds == {False, True}


def test_plain_problems() -> None:
    """Those of equal alignment and without gaps that do not fit into their largest live set."""
    above = [p for p in map(random_problem, range(150)) if least_plain_peak(p) > lower_bound(p)]
    assert len(above) >= 3
    for problem in above:
        problem = replace(problem, capacity=least_plain_peak(problem) - 1)
        conflict = find_conflict(problem)
        assert conflict is not None and conflict.proven and conflict.minimal and conflict.moment is None
        assert not fits_plain(part(problem, conflict.buffers), problem.capacity)
        for left_out in conflict.buffers:
            rest = tuple(i for i in conflict.buffers if i != left_out)
            assert fits_plain(part(problem, rest), problem.capacity)


def test_the_largest_of_the_largest_live_set_are_named() -> None:
    problem = Problem(
        [Buffer(4, 0, 9), Buffer(1, 2, 5), Buffer(7, 3, 4), Buffer(2, 3, 9), Buffer(11, 20, 21)], capacity=10
    )
    assert find_conflict(problem) == Conflict((0, 2), 3, True, True)
    assert find_conflict(replace(problem, capacity=14)) is None
    assert find_conflict(replace(problem, capacity=13)) == Conflict((0, 1, 2, 3), 3, True, True)


def test_fixed_buffers_that_leave_no_room() -> None:
    problem = Problem([Buffer(2, 0, 2, offset=3), Buffer(4, 0, 1), Buffer(1, 0, 2)], capacity=8)
    assert find_conflict(problem) == Conflict((0, 1), None, True, True)
    beyond = Problem([Buffer(1, 0, 2), Buffer(2, 0, 2, offset=7)], capacity=8)
    assert find_conflict(beyond) == Conflict((1,), None, True, True)


def test_without_time_nothing_is_claimed() -> None:
    problem = next(p for p in map(tight, range(1, 999, 3)) if least_peak(p) > lower_bound(p) + 1 and len(p.buffers) > 4)
    problem = replace(problem, capacity=least_peak(problem) - 1)
    conflict = find_conflict(problem, time_limit=0)
    assert conflict is not None and not conflict.proven and not conflict.minimal
    assert conflict.buffers == tuple(range(len(problem.buffers)))


def test_the_conflict_does_not_depend_on_the_threads() -> None:
    for seed in itertools.islice(itertools.count(1, 3), 5):
        problem = tight(seed)
        problem = replace(problem, capacity=least_peak(problem) - 1)
        assert find_conflict(problem, threads=1) == find_conflict(problem, threads=3)
