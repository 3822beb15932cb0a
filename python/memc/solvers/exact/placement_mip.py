# SPDX-License-Identifier: Apache-2.0
"""Address assignment as the mixed-integer program of Sekiyama et al. 2018, section 3.1, solved by CP-SAT.

Equation numbers are the paper's. Their big-M rows (3) and (4) are stated as what they mean: of two buffers that are
live together, one lies below the other, and the binary z says which. CP-SAT computes in integers, so a plan is exact at
any size; in floating point, W times a tolerance of 1e-6 is more than a kilobyte in an arena of two gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import gcd
from typing import Any

from ..buffers import Buffer
from ..placement_problem import Problem, Solution, lower_bound, solve_native
from .cp_sat import Limit

MOST_PAIRS = 200_000
"""Colliding pairs beyond which the program is not built: the warm start is returned as it is."""
MOST_UNITS = 2**53
"""Peak, in units of the sizes' greatest common divisor, that the solver takes with all its sums inside int64."""


def solve_mip(problem: Problem, time_limit: float | None = None, threads: int | None = None) -> Solution:
    """The optimum, or the best plan within the limit and the program's lower bound. Never above best-fit.

    Without `time_limit` (seconds) it runs one worker for a fixed amount of work, so the result depends on the problem
    only. Raises ValueError for a malformed problem, or one whose peak exceeds 2**53 units of the greatest common
    divisor of its sizes.
    """
    warm = solve_native(problem, "best-fit")
    bound = lower_bound(problem)
    # No more than it takes to see that there are too many: a million buffers can make 10**11.
    pairs = list(islice(_colliding_pairs(problem), MOST_PAIRS + 1)) if warm.peak > bound else []
    if not pairs or len(pairs) > MOST_PAIRS:
        return replace(warm, lower_bound=bound)
    return _program(problem, pairs, warm, bound, time_limit, threads)


def _program(
    problem: Problem,
    pairs: list[tuple[int, int]],
    warm: Solution,
    bound: int,
    time_limit: float | None,
    threads: int | None,
) -> Solution:
    from ortools.sat.python import cp_model

    sizes = [-(-b.size // problem.alignment) * problem.alignment for b in problem.buffers]
    # Some optimal plan has all offsets at sums of sizes and fixed offsets, so all are multiples of their divisor.
    steps = [b.alignment or problem.alignment for b in problem.buffers]
    unit = gcd(
        *sizes, *(b.offset or 0 for b in problem.buffers), *(s for s, b in zip(steps, problem.buffers) if b.alignment)
    )
    # W, the memory available: an optimal plan needs no more than the warm start.
    most = warm.peak // unit
    if most > MOST_UNITS:
        raise ValueError(f"mip: a peak of {most} units of {unit} bytes is beyond 2^53; use another solver")
    model = cp_model.CpModel()
    peak = model.new_int_var(bound // unit, most, "u")  # (5)
    model.minimize(peak)  # (1)
    width = [size // unit for size in sizes]
    x: dict[int, Any] = {}
    at: dict[int, Any] = {}
    for i in sorted({i for pair in pairs for i in pair}):
        fixed = problem.buffers[i].offset
        if fixed is None:
            step = max(1, steps[i] // unit) if problem.buffers[i].alignment else 1
            at[i] = model.new_int_var(0, (most - width[i]) // step, f"x{i}")  # (6)
            model.add_hint(at[i], warm.offsets[i] // unit // step)
            x[i] = step * at[i]
        else:
            x[i] = fixed // unit
        model.add(x[i] + width[i] <= peak)  # (2)
    for i, j in pairs:
        z = model.new_bool_var(f"z{i},{j}")
        model.add(x[i] + width[i] <= x[j]).only_enforce_if(~z)  # (3)
        model.add(x[j] + width[j] <= x[i]).only_enforce_if(z)  # (4)
        model.add_hint(z, warm.offsets[i] > warm.offsets[j])
    model.add_hint(peak, most)

    solver, status = Limit(time_limit, threads).solve(model, "addresses", unit)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return replace(warm, lower_bound=bound)
    offsets = list(warm.offsets)
    for i, variable in x.items():
        if problem.buffers[i].offset is None:
            offsets[i] = solver.value(variable) * unit
    ends = [offset + size for offset, size in zip(offsets, sizes) if size]
    proven = max(bound, round(solver.best_objective_bound) * unit)
    return Solution(tuple(offsets), max(ends), proven)


def _colliding_pairs(problem: Problem) -> Iterator[tuple[int, int]]:
    """The paper's E: i < j live together, without pairs that need no row (an empty buffer, two fixed ones)."""
    by_start = sorted((i for i, b in enumerate(problem.buffers) if b.size), key=lambda i: problem.buffers[i].lower)
    live: list[int] = []
    for i in by_start:
        buffer = problem.buffers[i]
        live = [j for j in live if problem.buffers[j].upper > buffer.lower]
        for j in live:
            other = problem.buffers[j]
            if (buffer.offset is None or other.offset is None) and _share_time(buffer, other):
                yield min(i, j), max(i, j)
        live.append(i)


def _share_time(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers with overlapping lifetimes are live at one time."""
    if not a.lives and not b.lives:
        return True
    return any(
        lower < end and begin < upper
        for lower, upper in a.lives or ((a.lower, a.upper),)
        for begin, end in b.lives or ((b.lower, b.upper),)
    )
