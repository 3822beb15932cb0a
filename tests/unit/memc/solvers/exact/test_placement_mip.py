# SPDX-License-Identifier: Apache-2.0
"""The integer program of addresses: optimal on small problems, exact at any size, valid with every option."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.solvers.exact import placement_mip
from memc.solvers.placement import Buffer, Problem, check, lower_bound, solve, solver_names


def meet(a: Buffer, b: Buffer) -> bool:
    return a.lower < b.upper and b.lower < a.upper


def least_peak(buffers: Sequence[Buffer]) -> int:
    """The optimum of a problem without fixed offsets or alignment, by trying everything; none of the solvers' code.

    In some optimal plan every buffer rests on 0 or on one that it meets. Buffers taken by rising offset then lie each on
    the highest of the earlier ones that they meet (its floor), so all such sequences are tried, except those that reach
    a state seen before or cannot end below the best.
    """
    goal = max((sum(b.size for b in buffers if b.lower <= t < b.upper) for t in {b.lower for b in buffers}), default=0)
    best = sum(b.size for b in buffers)
    seen = set()

    def place(floor: dict[int, int], last: int, peak: int) -> None:
        nonlocal best
        state = (tuple(sorted(floor.items())), last, peak)
        if best == goal or state in seen or max(peak, *(f + buffers[i].size for i, f in floor.items()), 0) >= best:
            return
        seen.add(state)
        if not floor:
            best = peak
        for i in sorted(floor, key=lambda i: -buffers[i].size):
            if floor[i] >= last:
                top = floor[i] + buffers[i].size
                raised = {j: max(f, top) if meet(buffers[i], buffers[j]) else f for j, f in floor.items() if j != i}
                place(raised, floor[i], max(peak, top))

    place(dict.fromkeys(range(len(buffers)), 0), 0, 0)
    return best


def draw(seed: int, most: int = 12) -> Problem:
    rng = random.Random(seed)
    steps = rng.choice([4, 8, 12])
    lives = [
        (lower, lower + rng.randint(1, 6)) for lower in (rng.randrange(steps) for _ in range(rng.randint(1, most)))
    ]
    return Problem([Buffer(rng.choice([1, 3, 7, rng.randint(1, 50)]), *life) for life in lives])


def test_it_stops_counting_pairs_once_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(3)
    asked = 0

    def pairs(problem: Problem) -> Iterator[tuple[int, int]]:
        nonlocal asked
        while True:
            asked += 1
            yield 0, 1

    monkeypatch.setattr(placement_mip, "MOST_PAIRS", 5)
    monkeypatch.setattr(placement_mip, "_colliding_pairs", pairs)
    monkeypatch.setattr(placement_mip, "lower_bound", lambda problem: 0)
    assert solve(problem, "mip").offsets == solve(problem, "best-fit").offsets and asked == 6


def test_it_is_listed() -> None:
    assert "mip" in solver_names()


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_optimum_proven(first: int) -> None:
    for seed in range(first, first + 20):
        problem = draw(seed)
        solution = solve(problem, "mip")
        assert check(problem, solution, by_definition=True).ok, f"seed {seed}"
        assert solution.proven_optimal, f"seed {seed}"
        assert solution.peak == least_peak(problem.buffers), f"seed {seed}"


def test_some_of_the_problems_are_not_solved_by_the_warm_start() -> None:
    hard = [problem for problem in map(draw, range(200)) if solve(problem, "best-fit").peak > lower_bound(problem)]
    assert [problem for problem in hard if solve(problem, "mip").peak < solve(problem, "best-fit").peak]


def test_a_bound_above_the_largest_live_set_is_proven() -> None:
    problem = Problem([Buffer(1, 0, 2, offset=3), Buffer(4, 0, 2)])
    solution = solve(problem, "mip")
    assert lower_bound(problem) == 5
    assert solution.peak == solution.lower_bound == 8


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_the_optimum_proven_on_many(first: int) -> None:
    test_the_optimum_proven(first)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), alignment=st.sampled_from([4, 64]), at=st.integers(0, 3), fixed=st.booleans())
def test_fixed_offsets_and_alignment(seed: int, alignment: int, at: int, fixed: bool) -> None:
    problem = draw(seed, 8)
    buffers = list(problem.buffers)
    if fixed:
        buffers[0] = replace(buffers[0], offset=at * alignment)
    problem = Problem([*buffers, Buffer(0, 0, 99)], alignment)
    solution = solve(problem, "mip")
    assert check(problem, solution, by_definition=True).ok
    assert solution.proven_optimal
    assert lower_bound(problem) <= solution.peak <= solve(problem, "auto").peak


@pytest.mark.parametrize("scale", [1, 2**30, 2**52])
def test_sizes_with_a_common_divisor_are_exact_at_any_scale(scale: int) -> None:
    unit = hard_with_sizes(2)
    problem = Problem([replace(b, size=b.size * scale) for b in unit.buffers])
    assert solve(problem, "mip").peak == least_peak(unit.buffers) * scale
    assert solve(problem, "mip").proven_optimal


def hard_with_sizes(scale: int) -> Problem:
    """A problem best-fit leaves above the largest live set, its sizes scaled and made coprime."""
    seed = next(s for s in range(1000) if solve(draw(s), "best-fit").peak > lower_bound(draw(s)))
    return Problem([replace(b, size=b.size * scale + i % 2) for i, b in enumerate(draw(seed).buffers)])


def test_large_coprime_sizes() -> None:
    problem = hard_with_sizes(2**30)
    solution = solve(problem, "mip")
    assert check(problem, solution, by_definition=True).ok
    assert solution.proven_optimal
    assert solution.peak == least_peak(problem.buffers)


def test_what_overflows_the_solver_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mip: a peak of \d+ units of 1 bytes is beyond 2\^53"):
        solve(hard_with_sizes(2**52), "mip")


def test_malformed() -> None:
    with pytest.raises(ValueError, match="buffer 0: lifetime"):
        solve(Problem([Buffer(1, 3, 3)]), "mip")


def test_without_time_it_is_the_warm_start_and_an_honest_bound() -> None:
    problem = hard_with_sizes(1)
    solution = solve(problem, "mip", time_limit=0.0)
    assert check(problem, solution).ok
    assert lower_bound(problem) <= solution.lower_bound <= solution.peak <= solve(problem, "best-fit").peak


def test_the_same_plan_every_time() -> None:
    assert solve(draw(11), "mip") == solve(draw(11), "mip", threads=4)
