# SPDX-License-Identifier: Apache-2.0
"""Buffers with gaps in their lifetimes and with alignments of their own: plans, checks and optima from the definition."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.solvers.placement import (
    Buffer,
    BufferColumns,
    Problem,
    Solution,
    Violation,
    check,
    lower_bound,
    solve,
    solver_names,
)

FAST = [name for name in solver_names() if name not in ("mip", "auto", "search")]


def moments(buffer: Buffer) -> set[int]:
    """The time steps at which it is live, from the definition."""
    return {t for lower, upper in buffer.lives or ((buffer.lower, buffer.upper),) for t in range(lower, upper)}


def rounded(problem: Problem, index: int) -> int:
    return -(-problem.buffers[index].size // problem.alignment) * problem.alignment


def valid(problem: Problem, offsets: tuple[int, ...]) -> bool:
    """Whether a plan is valid, byte by byte and step by step."""
    taken: set[tuple[int, int]] = set()
    for index, (buffer, offset) in enumerate(zip(problem.buffers, offsets)):
        if offset < 0 or offset % (buffer.alignment or problem.alignment):
            return False
        if buffer.offset not in (None, offset):
            return False
        if buffer.size and offset + rounded(problem, index) > problem.capacity:
            return False
        cells = {(t, byte) for t in moments(buffer) for byte in range(offset, offset + buffer.size)}
        if cells & taken:
            return False
        taken |= cells
    return True


def peak_of(problem: Problem, offsets: tuple[int, ...]) -> int:
    return max((o + rounded(problem, i) for i, o in enumerate(offsets) if problem.buffers[i].size), default=0)


def fits(problem: Problem, limit: int) -> bool:
    """Whether a plan keeps the limit: every aligned offset of every buffer is tried."""
    buffers = problem.buffers

    def extend(index: int, placed: tuple[int, ...]) -> bool:
        if index == len(buffers):
            return True
        buffer, size = buffers[index], rounded(problem, index)
        step = buffer.alignment or problem.alignment
        for offset in range(0, limit - size + 1, step) if buffer.offset is None else [buffer.offset]:
            clear = all(
                offset >= o + rounded(problem, j) or o >= offset + size or not size or not buffers[j].size
                for j, o in enumerate(placed)
                if moments(buffers[j]) & moments(buffer)
            )
            if clear and (not size or offset + size <= limit) and extend(index + 1, (*placed, offset)):
                return True
        return False

    return extend(0, ())


def least_peak(problem: Problem) -> int:
    return next(peak for peak in itertools.count(lower_bound(problem), problem.alignment) if fits(problem, peak))


@st.composite
def buffers(draw: st.DrawFn, step: int) -> Buffer:
    times = sorted(draw(st.sets(st.integers(-3, 9), min_size=2, max_size=6)))
    lives = tuple(zip(times[::2], times[1::2]))
    alignment = step * draw(st.sampled_from([1, 1, 2, 3])) if draw(st.booleans()) else None
    offset = None
    if draw(st.integers(0, 9)) == 0:
        offset = (alignment or step) * draw(st.integers(0, 3))
    return Buffer.of_lives(draw(st.integers(0, 9)), lives, offset, alignment)


@st.composite
def problems(draw: st.DrawFn, most: int = 8) -> Problem:
    step = draw(st.sampled_from([1, 1, 2]))
    return Problem(draw(st.lists(buffers(step), max_size=most)), step)


def fixed_clash(problem: Problem) -> bool:
    """Whether buffers of fixed offset alone are no plan."""
    fixed = [b for b in problem.buffers if b.offset is not None]
    part = replace(problem, buffers=fixed)
    return not valid(part, tuple(b.offset for b in fixed if b.offset is not None))


@given(problems(most=14), st.sampled_from(FAST))
def test_heuristics_make_valid_plans(problem: Problem, solver: str) -> None:
    solution = solve(problem, solver)
    assert solution.peak == peak_of(problem, solution.offsets)
    assert check(problem, solution).ok == valid(problem, solution.offsets) == (not fixed_clash(problem))
    assert solution.lower_bound == lower_bound(problem)


@given(problems(), st.data())
def test_the_checks_agree_with_the_definition(problem: Problem, data: st.DataObject) -> None:
    offsets = tuple(data.draw(st.integers(0, 12)) for _ in problem.buffers)
    problem = replace(problem, capacity=data.draw(st.sampled_from([12, 20, 40])))
    solution = Solution(offsets, peak_of(problem, offsets))
    expected = valid(problem, offsets)
    assert check(problem, solution).ok == expected
    assert check(problem, solution, by_definition=True).ok == expected


@given(problems())
def test_the_bound_is_the_largest_live_set(problem: Problem) -> None:
    times = set().union(*map(moments, problem.buffers)) if problem.buffers else set()
    live = [sum(rounded(problem, i) for i, b in enumerate(problem.buffers) if t in moments(b)) for t in times]
    ends = [b.offset + rounded(problem, i) for i, b in enumerate(problem.buffers) if b.offset is not None and b.size]
    assert lower_bound(problem) == max([*live, *ends], default=0)


def tight(seed: int) -> Problem:
    """Up to 7 buffers, most with gaps, of few sizes; two in three problems have alignments of single buffers."""
    rng = random.Random(seed)
    step = rng.choice([1, 1, 2])
    made = []
    for _ in range(rng.randint(3, 7)):
        times = sorted(rng.sample(range(9), rng.choice([2, 4, 4, 6])))
        alignment = step * rng.choice([1, 2, 3, 4]) if seed % 3 else None
        made.append(Buffer.of_lives(rng.randint(1, 4) * step, tuple(zip(times[::2], times[1::2])), None, alignment))
    if seed % 5 == 0:
        made[0] = replace(made[0], offset=(made[0].alignment or step) * rng.randint(0, 3))
    return Problem(made, step)


@pytest.mark.parametrize("block", range(4))
def test_search_equals_brute_force(block: int) -> None:
    raised = 0
    for seed in range(60 * block, 60 * (block + 1)):
        problem = tight(seed)
        least = least_peak(problem)
        raised += least > lower_bound(problem)
        for solver in ("search", "auto"):
            solution = solve(problem, solver)
            assert check(problem, solution, by_definition=True).ok, seed
            assert solution.peak == solution.lower_bound == least, seed
    assert raised > 5


def test_mip_equals_brute_force() -> None:
    for seed in range(25):
        problem = tight(seed)
        solution = solve(problem, "mip")
        assert check(problem, solution).ok, seed
        assert solution.peak == least_peak(problem), seed


@given(problems(most=14), st.sampled_from([*FAST, "auto"]))
@settings(max_examples=50, deadline=None)
def test_one_interval_and_the_common_alignment_change_nothing(problem: Problem, solver: str) -> None:
    """Said for each buffer, they give the plan that they give said for none."""
    plain = [replace(b, lives=(), alignment=None) for b in problem.buffers]
    plain = [replace(b, offset=None if b.offset is None else b.offset * problem.alignment) for b in plain]
    said = [replace(b, lives=((b.lower, b.upper),), alignment=problem.alignment) for b in plain]
    assert solve(replace(problem, buffers=said), solver) == solve(replace(problem, buffers=plain), solver)


def test_a_buffer_lies_in_the_gap_of_another() -> None:
    problem = Problem([Buffer.of_lives(8, ((0, 3), (7, 9))), Buffer(8, 3, 7), Buffer(4, 2, 4)])
    assert lower_bound(problem) == 12
    assert solve(problem).peak == 12
    assert check(problem, Solution((0, 0, 8), 12)).ok
    touching = replace(problem, buffers=[*problem.buffers[:1], Buffer(8, 3, 8)])
    assert check(touching, Solution((0, 0), 8)).violation is Violation.OVERLAP


def test_offsets_are_multiples_of_each_alignment() -> None:
    problem = Problem([Buffer(3, 0, 2), Buffer(4, 0, 2, alignment=8), Buffer(1, 0, 2)])
    assert solve(problem).peak == 8  # The aligned one at 0, or at 8 with 12 bytes: both others above it.
    assert check(problem, Solution((0, 4, 3), 8)).violation is Violation.MISALIGNED


def test_many_buffers_with_gaps() -> None:
    rng = random.Random(1)
    made = []
    for _ in range(3000):
        begin = rng.randrange(2000)
        made.append(Buffer.of_lives(rng.randint(1, 99), ((begin, begin + 5), (begin + 9, begin + 12)), None, 8))
    problem = Problem(made)
    for solver in (*FAST, "auto"):
        solution = solve(problem, solver, time_limit=2)
        assert check(problem, solution).ok and check(problem, solution, by_definition=True).ok, solver
        assert solution.peak >= lower_bound(problem)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (Buffer(1, 0, 9, lives=((0, 3), (3, 9))), "with gaps between them, from 0 to 9"),
        (Buffer(1, 0, 9, lives=((0, 3), (5, 8))), "with gaps between them, from 0 to 9"),
        (Buffer(1, 0, 9, lives=((5, 9), (0, 3))), "with gaps between them, from 0 to 9"),
        (Buffer(1, 0, 9, lives=((0, 3), (5, 5), (7, 9))), "with gaps between them, from 0 to 9"),
        (Buffer(1, 0, 9, alignment=6), "alignment must be a multiple of the problem's, 4, up to 2^62, got 6"),
        (Buffer(1, 0, 9, 4, alignment=8), "fixed offset 4 is not a multiple of 8"),
        (Buffer(1, 0, 9, alignment=-8), "buffer 0: alignment -8 is not positive"),
    ],
)
def test_malformed_buffers(buffer: Buffer, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("^", r"\^")):
        solve(Problem([buffer], 4), "first-fit")


def test_columns_keep_gaps_and_alignments() -> None:
    made = [Buffer.of_lives(8, ((0, 2), (4, 5))), Buffer(4, 1, 3, alignment=16), Buffer(2, 2, 3)]
    columns = BufferColumns.of(made)
    assert list(columns) == made and list(columns[1:]) == made[1:]
    assert columns[2:].lives is None and columns[2:].alignments is None
    assert solve(Problem(columns)) == solve(Problem(made))
