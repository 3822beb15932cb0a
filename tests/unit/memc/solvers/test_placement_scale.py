# SPDX-License-Identifier: Apache-2.0
"""Problems given as columns, and heuristics on more buffers than one would write down."""

from __future__ import annotations

import numpy as np
import pytest

from memc.solvers.placement import Buffer, BufferColumns, Problem, check, lower_bound, solve

FIRST_FITS = {
    "first-fit": lambda b: (-b.size, b.lower - b.upper),
    "first-fit-area": lambda b: (b.size * (b.lower - b.upper), -b.size),
    "first-fit-arrival": lambda b: (b.lower, -b.size, b.lower - b.upper),
    "first-fit-departure": lambda b: (-b.upper, -b.size, b.lower - b.upper),
    "first-fit-given": lambda b: 0,
    "first-fit-lifetime": lambda b: (b.lower - b.upper, -b.size),
}


def random_columns(count: int, seed: int, *, longest: int) -> BufferColumns:
    rng = np.random.default_rng(seed)
    lowers = rng.integers(0, count, count)
    return BufferColumns(rng.integers(1, 1000, count), lowers, lowers + rng.integers(1, longest + 1, count))


def lowest_first(problem: Problem, order: list[int]) -> list[int]:
    """First fit from its definition: each buffer in turn at the lowest offset free throughout its lifetime."""
    offsets = [-1] * len(order)
    for index in order:
        buffer = problem.buffers[index]
        taken = [
            (offsets[other], offsets[other] + problem.buffers[other].size)
            for other in order
            if offsets[other] >= 0
            and problem.buffers[other].lower < buffer.upper
            and buffer.lower < problem.buffers[other].upper
        ]
        offset = 0
        for begin, end in sorted(taken):
            if begin - offset >= buffer.size:
                break
            offset = max(offset, end)
        offsets[index] = offset
    return offsets


def longest_first(problem: Problem) -> list[int]:
    """Sekiyama's heuristic from its definition, over the offset of every moment."""
    buffers = problem.buffers
    moments = max(b.upper for b in buffers)
    first = min(b.lower for b in buffers)
    tops = [0] * moments
    offsets = [-1] * len(buffers)
    waiting = sorted(range(len(buffers)), key=lambda i: (buffers[i].lower - buffers[i].upper, -buffers[i].size, i))
    while waiting:
        offset = min(tops[first:])
        lower = tops.index(offset, first)
        upper = next((t for t in range(lower, moments) if tops[t] != offset), moments)
        fitting = [i for i in waiting if lower <= buffers[i].lower and buffers[i].upper <= upper]
        if fitting:
            offsets[fitting[0]] = offset
            waiting.remove(fitting[0])
            lower, upper, offset = (
                buffers[fitting[0]].lower,
                buffers[fitting[0]].upper,
                offset + buffers[fitting[0]].size,
            )
        else:
            offset = min([*tops[lower - 1 : lower][: lower > first], *tops[upper : upper + 1]])
        tops[lower:upper] = [offset] * (upper - lower)
    return offsets


def test_columns_read_like_a_list() -> None:
    buffers = [Buffer(8, 0, 2), Buffer(4, 1, 3, offset=64), Buffer(2, 2, 3)]
    columns = BufferColumns.of(buffers)
    assert list(columns) == buffers
    assert columns[-1] == buffers[-1]
    assert list(columns[1:]) == buffers[1:]
    assert BufferColumns.of(columns) is columns
    assert list(BufferColumns([], [], [])) == []


def test_columns_and_buffers_get_the_same_plan() -> None:
    columns = random_columns(200, 1, longest=40)
    solution = solve(Problem(columns, 16), "best-fit")
    assert solution == solve(Problem(list(columns), 16), "best-fit")
    assert solution.offset_array().tolist() == list(solution.offsets)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([1, 2], [0, 0], [1]), "uppers: expected 2 values, one for each size, got 1"),
        (([1.5], [0], [1]), "sizes: expected one dimension of integers up to 64 bits, got 1 of float64"),
        (([2**63], [0], [1]), "sizes: expected one dimension of integers up to 64 bits, got 1 of uint64"),
        (([[1]], [0], [1]), "sizes: expected one dimension of integers up to 64 bits, got 2 of int64"),
        (([1], [0], [1], [-2]), "buffer 0: fixed offset -2 is negative"),
    ],
)
def test_malformed_columns(columns: tuple[list[int], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BufferColumns(*columns)


@pytest.mark.parametrize("solver", FIRST_FITS)
@pytest.mark.parametrize("longest", [5, 60, 600])
def test_first_fit_follows_its_definition(solver: str, longest: int) -> None:
    problem = Problem(random_columns(300, longest, longest=longest))
    order = sorted(range(300), key=lambda i: FIRST_FITS[solver](problem.buffers[i]))
    assert list(solve(problem, solver).offsets) == lowest_first(problem, order)


def test_first_fit_of_many_sparse_buffers_follows_its_definition() -> None:
    # 30 copies of one problem, one after another in time, are placed as the problem is.
    part = random_columns(200, 3, longest=20)
    shift = np.repeat(np.arange(30) * 300, 200)
    columns = (np.tile(column, 30) for column in (part.sizes, part.lowers, part.uppers))
    sizes, lowers, uppers = columns
    whole = Problem(BufferColumns(sizes, lowers + shift, uppers + shift))
    for solver in FIRST_FITS:
        assert solve(whole, solver).offsets == 30 * solve(Problem(part), solver).offsets


@pytest.mark.parametrize("longest", [3, 20, 200])
def test_best_fit_follows_its_definition(longest: int) -> None:
    for seed in range(5):
        problem = Problem(random_columns(150, seed, longest=longest))
        assert list(solve(problem, "best-fit").offsets) == longest_first(problem)


def test_best_fit_of_a_hundred_thousand_nested_lifetimes_meets_the_bound() -> None:
    count = 100_000
    rng = np.random.default_rng(0)
    forward = np.arange(count)
    problem = Problem(BufferColumns(rng.integers(1, 1 << 20, count), forward, 2 * count - forward), 64)
    solution = solve(problem, "best-fit")
    assert solution.peak == solution.lower_bound == lower_bound(problem)
    assert check(problem, solution).ok


@pytest.mark.parametrize("length", [2, 3, 4])
def test_long_chains_meet_the_lower_bound(length: int) -> None:
    """Buffer k lives from k to k + length; the heuristics are a fifth or more above the bound."""
    lowers = np.arange(50_000)
    sizes = np.random.default_rng(length).integers(1, 1_000_001, len(lowers))
    problem = Problem(BufferColumns(sizes, lowers, lowers + length), 64)
    solution = solve(problem)
    assert check(problem, solution).ok
    assert solution.peak == solution.lower_bound == lower_bound(problem)
    assert solve(problem, "best-fit").peak > 1.15 * solution.peak


def test_long_chains_meet_the_lower_bound_within_a_time_limit() -> None:
    lowers = np.arange(20_000)
    sizes = np.random.default_rng(0).integers(1, 1_000_001, len(lowers))
    problem = Problem(BufferColumns(sizes, lowers, lowers + 2))
    solution = solve(problem, time_limit=60.0)
    assert check(problem, solution).ok
    assert solution.peak == solution.lower_bound
