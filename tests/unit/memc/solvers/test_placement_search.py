# SPDX-License-Identifier: Apache-2.0
"""The complete search: equal to brute force, deterministic, and honest about what it has proven."""

from __future__ import annotations

import csv
import functools
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memc.solvers.placement import MAX_BYTES, Buffer, Problem, check, lower_bound, solve
from memc.solvers.placement_problem import solve_native

MINIMALLOC = Path(__file__).parents[4] / "benchmarks" / "data" / "minimalloc"


def fits(problem: Problem, limit: int) -> bool:
    """Whether a plan keeps the limit, from the definition: buffer after buffer in order of time, every multiple of the
    alignment is tried, and nothing is pruned but collisions. What fails for some live buffers is not tried again."""
    step = problem.alignment
    buffers = sorted((b for b in problem.buffers if b.size), key=lambda b: b.lower)
    failed: set[tuple[int, frozenset[tuple[int, int, int]]]] = set()

    def extend(index: int, placed: frozenset[tuple[int, int, int]]) -> bool:
        if index == len(buffers):
            return True
        buffer = buffers[index]
        live = frozenset(p for p in placed if p[2] > buffer.lower)
        if (index, live) in failed:
            return False
        size = -(-buffer.size // step) * step
        starts = range(0, limit - size + 1, step) if buffer.offset is None else [buffer.offset]
        for start in starts:
            end = start + size
            if end <= limit and not any(begin < end and start < top for begin, top, _ in live):
                if extend(index + 1, live | {(start, end, buffer.upper)}):
                    return True
        failed.add((index, live))
        return False

    return extend(0, frozenset())


def least_peak(problem: Problem) -> int:
    return next(peak for peak in itertools.count(lower_bound(problem), problem.alignment) if fits(problem, peak))


def random_problem(seed: int) -> Problem:
    """Up to 12 buffers, tight: few sizes and many live together. One in three has fixed offsets."""
    rng = random.Random(seed)
    step = rng.choice([1, 1, 4])
    buffers = []
    for _ in range(rng.randint(1, 12)):
        lower = rng.randint(0, 8)
        buffers.append(Buffer(rng.randint(1, 4) * step - rng.randint(0, step - 1), lower, lower + rng.randint(1, 5)))
    if seed % 3 == 0:
        buffers[0] = replace(buffers[0], offset=step * rng.randint(0, 4))
    return Problem(buffers, step)


@pytest.mark.parametrize("block", range(4))
def test_search_equals_brute_force(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        problem = random_problem(seed)
        solution = solve(problem, "search")
        assert check(problem, solution).ok
        assert solution.peak == least_peak(problem), seed
        assert solution.proven_optimal, seed


@functools.cache
def unfit() -> Problem:
    """A problem whose optimum is above its largest live set."""
    return next(p for p in map(random_problem, range(1000)) if least_peak(p) > lower_bound(p))


def test_the_bound_is_raised_where_the_largest_live_set_is_out_of_reach() -> None:
    problem = unfit()
    for solver in ("search", "auto"):
        solution = solve(problem, solver)
        assert solution.lower_bound == solution.peak == least_peak(problem) > lower_bound(problem)


def test_a_capacity_below_the_optimum_is_refuted() -> None:
    problem = unfit()
    best = least_peak(problem)
    for solver in ("search", "auto"):
        assert solve(replace(problem, capacity=best - 1), solver).lower_bound > best - 1
        assert solve(replace(problem, capacity=best), solver).peak <= best


def minimalloc(name: str) -> Problem:
    with (MINIMALLOC / f"{name}.1048576.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return Problem([Buffer(int(r["size"]), int(r["lower"]), int(r["upper"])) for r in rows], capacity=1048576)


def test_one_round_takes_little_work() -> None:
    """The whole search brings D below the 1 MiB that the authors have for it; its first round finds A's least peak, not that."""
    easy, hard = minimalloc("A"), replace(minimalloc("D"), capacity=MAX_BYTES)
    assert solve_native(easy, "auto", one_round=True).peak == lower_bound(easy)
    found = solve_native(hard, "auto", one_round=True)
    assert check(hard, found).ok
    assert 2**20 < found.peak <= solve(hard, "best-fit").peak


@pytest.mark.parametrize("name", ["B", "E", "H", "K"])
def test_hard_problems_fit(name: str) -> None:
    problem = minimalloc(name)
    solution = solve(problem)
    assert check(problem, solution).ok
    assert solution.peak <= problem.capacity


def test_the_plan_does_not_depend_on_the_threads() -> None:
    problem = minimalloc("C")
    assert solve(problem, "search", threads=1) == solve(problem, "search", threads=3)


def movable() -> Problem:
    """One part of 5,000 buffers that the heuristics do not place at the bound."""
    rng = random.Random(3)
    starts = [rng.randrange(2000) for _ in range(5000)]
    return Problem([Buffer(rng.randint(1, 500), lower, lower + rng.randint(1, 150)) for lower in starts])


def nearly_fixed() -> Problem:
    """5,000 bytes fixed at 2 or 3 in turn, which two buffers of 6 must lie above: at 16 bytes, where the bound is 14."""
    fixed = [Buffer(1, i, i + 2, offset=2 + i % 2) for i in range(5000)]
    return Problem([Buffer(6, 0, 5001), Buffer(6, 0, 5001), *fixed])


@pytest.mark.parametrize(("make", "solver"), [(movable, "search"), (nearly_fixed, "auto")])
def test_with_nothing_left_to_try_it_ends_before_the_time_limit(make: Callable[[], Problem], solver: str) -> None:
    problem = make()
    begin = time.monotonic()
    solution = solve(problem, solver, time_limit=120)
    assert time.monotonic() - begin < 60  # It takes a fraction of a second.
    assert check(problem, solution).ok and solution.peak > lower_bound(problem)


def test_a_time_limit_is_kept_with_a_valid_plan() -> None:
    problem = replace(minimalloc("D"), capacity=10**9)
    solution = solve(problem, time_limit=0)
    assert check(problem, solution).ok
    assert solution.lower_bound <= solution.peak


def test_fixed_offsets_beyond_reach_of_each_other() -> None:
    # Two fixed buffers leave a hole of 8 bytes that only the 8-byte buffer fills.
    problem = Problem(
        [Buffer(4, 0, 4, offset=0), Buffer(4, 0, 4, offset=12), Buffer(3, 0, 2), Buffer(8, 1, 4), Buffer(5, 0, 1)]
    )
    solution = solve(problem, "search")
    assert check(problem, solution).ok
    assert solution.peak == least_peak(problem) == solution.lower_bound


def test_fixed_offsets_that_intersect_stay() -> None:
    problem = Problem([Buffer(4, 0, 2, offset=0), Buffer(4, 1, 3, offset=2), Buffer(1, 0, 3)])
    assert solve(problem, "search").offsets == (0, 2, 6)
