# SPDX-License-Identifier: Apache-2.0
"""Native solvers: valid plans, optimal on tiny problems, one verdict per kind of violation."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.solvers.placement import Buffer, Problem, Solution, Violation, check, lower_bound, solve, solver_names

HEURISTICS = [
    "best-fit",
    "first-fit",
    "first-fit-area",
    "first-fit-arrival",
    "first-fit-departure",
    "first-fit-given",
    "first-fit-lifetime",
]


@st.composite
def problems(draw: st.DrawFn, most: int = 12, fixed: bool = True) -> Problem:
    alignment = draw(st.sampled_from([1, 4, 64]))
    buffers = []
    for _ in range(draw(st.integers(0, most))):
        lower = draw(st.integers(-3, 12))
        upper = lower + draw(st.integers(1, 6))
        buffers.append(Buffer(draw(st.integers(0, 100)), lower, upper))
    if fixed and buffers and draw(st.booleans()):
        buffers[0] = replace(buffers[0], offset=alignment * draw(st.integers(0, 3)))
    return Problem(buffers, alignment)


def rounded(problem: Problem, buffer: Buffer) -> int:
    return -(-buffer.size // problem.alignment) * problem.alignment


def live_bytes(problem: Problem) -> int:
    """The largest live set, from the definition."""
    times = {b.lower for b in problem.buffers}
    sums = [sum(rounded(problem, b) for b in problem.buffers if b.lower <= t < b.upper) for t in times]
    return max(sums, default=0)


def least_peak(problem: Problem) -> int:
    """The optimum: some order makes lowest-fit placement optimal, so all orders are tried."""
    best = None
    for order in itertools.permutations(problem.buffers):
        placed: list[tuple[int, Buffer]] = []
        for buffer in order:
            tops = [o + rounded(problem, b) for o, b in placed if b.lower < buffer.upper and buffer.lower < b.upper]
            size = rounded(problem, buffer)
            for offset in sorted({0, *tops}):
                if not any(
                    b.lower < buffer.upper
                    and buffer.lower < b.upper
                    and o < offset + size
                    and offset < o + rounded(problem, b)
                    for o, b in placed
                ):
                    placed.append((offset, buffer))
                    break
        peak = max((o + rounded(problem, b) for o, b in placed), default=0)
        best = peak if best is None else min(best, peak)
    return best or 0


def test_names() -> None:
    assert solver_names() == sorted([*HEURISTICS, "auto", "mip", "search", "sequential"])


@pytest.mark.parametrize("solver", [*HEURISTICS, "auto", "search", "sequential"])
@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_plans_are_valid(solver: str, problem: Problem) -> None:
    solution = solve(problem, solver)
    assert check(problem, solution).ok
    assert check(problem, solution, by_definition=True).ok
    assert solution.peak >= lower_bound(problem)
    assert solve(problem, solver) == solution


@settings(max_examples=60, deadline=None)
@given(problem=problems(most=5, fixed=False))
def test_auto_finds_the_optimum_of_tiny_problems(problem: Problem) -> None:
    sizes = [replace(b, size=max(b.size, 1)) for b in problem.buffers]
    problem = replace(problem, buffers=sizes)
    assert solve(problem, "auto").peak == least_peak(problem)


@settings(max_examples=60, deadline=None)
@given(problem=problems(fixed=False))
def test_lower_bound_is_the_largest_live_set(problem: Problem) -> None:
    assert lower_bound(problem) == live_bytes(problem)


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_auto_is_never_above_a_heuristic(problem: Problem) -> None:
    assert solve(problem).peak <= min(solve(problem, name).peak for name in HEURISTICS)


@settings(max_examples=300, deadline=None)
@given(problem=problems(most=6), data=st.data())
def test_checker_agrees_with_the_definition(problem: Problem, data: st.DataObject) -> None:
    offsets = tuple(data.draw(st.integers(-1, 4)) * problem.alignment * 8 for _ in problem.buffers)
    ends = [o + rounded(problem, b) for o, b in zip(offsets, problem.buffers) if b.size]
    solution = Solution(offsets, max(ends, default=0))
    sweep = check(problem, solution)
    assert sweep.violation is check(problem, solution, by_definition=True).violation


def test_sekiyama_places_the_longest_lived_first() -> None:
    # At offset 0 the whole time is one line: the longest block goes first, although it is small. Then the lowest,
    # leftmost line takes the longest block that fits it.
    problem = Problem([Buffer(8, 0, 2), Buffer(1, 1, 9), Buffer(5, 0, 1), Buffer(3, 2, 9)])
    solution = solve(problem, "best-fit")
    assert solution.offsets == (5, 0, 0, 1)
    assert solution.peak == 13


def test_two_small_ones_share_the_place_of_a_large_one() -> None:
    problem = Problem([Buffer(1000, 0, 2), Buffer(400, 3, 6), Buffer(500, 3, 6)])
    for solver in [*HEURISTICS, "auto"]:
        assert solve(problem, solver).peak == 1000
    assert solve(problem, "sequential") == Solution((0, 1000, 1400), 1900, 1000)


def test_first_fit_orders() -> None:
    buffers = [Buffer(2, 0, 9), Buffer(5, 0, 1), Buffer(3, 0, 4)]
    at = {name: solve(Problem(buffers), name).offsets for name in HEURISTICS if name.startswith("first")}
    assert at["first-fit"] == (8, 0, 5)
    assert at["first-fit-lifetime"] == (0, 5, 2)
    assert at["first-fit-area"] == (0, 5, 2)
    assert at["first-fit-arrival"] == (8, 0, 5)
    assert at["first-fit-departure"] == (0, 5, 2)
    assert at["first-fit-given"] == (0, 2, 7)


def encoder_layer(begin: int, stream: int) -> list[Buffer]:
    """The large buffers of one layer of a vision transformer, in units of the residual stream's size."""
    lives = [
        (1, 5, 11),
        (3, 10, 14),
        (3, 13, 24),
        (1, 19, 31),
        (1, 21, 30),
        (1, 23, 36),
        (1, 29, 31),
        (3.08, 30, 36),
        (1, 35, 37),
        (1, 36, 39),
        (1, 38, 42),
        (1, 43, 47),
        (4, 46, 52),
        (1, 51, 53),
    ]
    return [Buffer(int(units * stream), begin + lower, begin + upper) for units, lower, upper in lives]


def test_parts_that_defeat_heuristics_are_solved_exactly() -> None:
    stream = 605184
    layers = [buffer for n in range(12) for buffer in encoder_layer(60 * n, stream)]
    problem = Problem([Buffer(stream, 0, 720), *layers], alignment=64)
    assert min(solve(problem, name).peak for name in HEURISTICS) > lower_bound(problem)
    assert solve(problem).peak == lower_bound(problem)


def test_fixed_offsets_stay() -> None:
    problem = Problem([Buffer(10, 0, 4), Buffer(10, 0, 4, offset=64), Buffer(100, 2, 3)], alignment=64)
    for solver in solver_names():
        solution = solve(problem, solver)
        assert solution.offsets[1] == 64
        assert check(problem, solution).ok
    assert lower_bound(problem) == 256


@pytest.mark.parametrize(
    ("offsets", "peak", "violation", "first", "second"),
    [
        ((0, 64, 128), 192, Violation.NONE, None, None),
        ((0, 64), 128, Violation.WRONG_COUNT, None, None),
        ((-64, 64, 128), 192, Violation.NEGATIVE, 0, None),
        ((8, 64, 128), 192, Violation.MISALIGNED, 0, None),
        ((0, 128, 128), 192, Violation.MOVED, 1, None),
        ((0, 64, 192), 256, Violation.OVER_CAPACITY, 2, None),
        ((0, 64, 64), 128, Violation.OVERLAP, 1, 2),
        ((0, 64, 128), 128, Violation.WRONG_PEAK, None, None),
    ],
)
def test_violations(
    offsets: tuple[int, ...], peak: int, violation: Violation, first: int | None, second: int | None
) -> None:
    problem = Problem([Buffer(64, 0, 2), Buffer(64, 0, 3, offset=64), Buffer(10, 1, 3)], alignment=64, capacity=192)
    for by_definition in (False, True):
        result = check(problem, Solution(offsets, peak), by_definition=by_definition)
        assert (result.violation, result.first, result.second) == (violation, first, second)


def test_huge_sizes_do_not_wrap() -> None:
    problem = Problem([Buffer(2**62, 0, 1), Buffer(2**62 - 64, 1, 2), Buffer(2**61, 1, 2)], alignment=64)
    for solver in [*HEURISTICS, "auto"]:
        solution = solve(problem, solver)
        assert check(problem, solution).ok
        assert solution.peak == 2**62 + 2**61 - 64
    too_much = Problem([Buffer(2**62, 0, 1), Buffer(2**62, 0, 1)])
    for solver in solver_names():
        with pytest.raises(OverflowError, match="more than 2\\^63 - 1 bytes"):
            solve(too_much, solver)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem([Buffer(1, 0, 1), Buffer(-1, 0, 1)]), "buffer 1: size must be 0 to 2\\^62 bytes, got -1"),
        (Problem([Buffer(1, 3, 3)]), "buffer 0: lifetime \\[3, 3\\) is empty"),
        (Problem([Buffer(1, 0, 1, offset=3)], alignment=2), "buffer 0: fixed offset 3 is not a multiple of 2"),
        (Problem([Buffer(1, 0, 1, offset=-2)]), "buffer 0: fixed offset -2 is negative"),
        (Problem([Buffer(1, 0, 1)], alignment=0), "alignment must be at least 1, got 0"),
    ],
)
def test_malformed_problems(problem: Problem, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve(problem)


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match='no solver "simplex"; there are: auto, best-fit, .*mip'):
        solve(Problem([]), "simplex")


def test_empty_problem() -> None:
    for solver in solver_names():
        assert solve(Problem([]), solver) == Solution((), 0)
