# SPDX-License-Identifier: Apache-2.0
"""The integer program of order, alone and with addresses: optimal on small graphs by brute force."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from memc.solvers.exact.cp_sat import Limit
from memc.solvers.exact.order_ilp import JointSolution, independent_parts, solve_joint
from memc.solvers.exact.order_precedence import Expired, decide_pairs, least_undecided, reduce_problem, transitive
from memc.solvers.exact.order_programs import JointProgram, OrderProgram
from memc.solvers.order import OrderProblem, order_peak, order_solver_names, solve_order


def draw(seed: int, most: int = 9) -> OrderProblem:
    """Ops that read up to three storages, some in place, some with several results, some with scratch."""
    rng = random.Random(seed)
    ops = rng.randint(1, most)
    sizes: list[int] = []
    touches: list[list[int]] = []
    after: list[set[int]] = []
    writers: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    for op in range(ops):
        reads = rng.sample(range(len(sizes)), min(len(sizes), rng.choice([0, 1, 1, 1, 2, 2, 3])))
        writes = [storage for storage in reads if rng.random() < 0.2]
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            writes.append(len(sizes))
            sizes.append(rng.choice([0, 1, 2, 3, 4, 8, 13]))
        needed = {writers[storage] for storage in reads}
        for storage in writes:
            needed |= readers.get(storage, set())
        touches.append(sorted({*reads, *writes}))
        after.append(needed)
        for storage in writes:
            writers[storage], readers[storage] = op, set()
        for storage in reads:
            if storage not in writes:
                readers[storage].add(op)
    kept = frozenset(storage for storage in range(len(sizes)) if rng.random() < 0.15)
    scratch = [rng.choice([0, 0, 0, 5]) for _ in range(ops)] if rng.random() < 0.4 else []
    return OrderProblem(sizes, touches, [sorted(ops) for ops in after], kept, scratch)


def orders(problem: OrderProblem, done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All of them."""
    if len(done) == len(problem.touches):
        yield done
    for op, after in enumerate(problem.after):
        if op not in done and set(after) <= set(done):
            yield from orders(problem, (*done, op))


Lives = tuple[tuple[int, int, int], ...]
"""Sorted (size, lower, upper)."""


def lives(problem: OrderProblem, order: tuple[int, ...]) -> Lives:
    found = []
    for storage, size in enumerate(problem.sizes):
        at = [place for place, op in enumerate(order) if storage in problem.touches[op]]
        if at and size:
            found.append((size, at[0], len(order) if storage in problem.kept else at[-1] + 1))
    for op, size in enumerate(problem.scratch):
        if size:
            found.append((size, order.index(op), order.index(op) + 1))
    return tuple(sorted(found))


def largest_live_set(buffers: Lives) -> int:
    return max((sum(s for s, a, b in buffers if a <= t < b) for t in {a for _, a, _ in buffers}), default=0)


def fits(buffers: Lives, capacity: int) -> bool:
    """Whether some addresses need no more than `capacity`: buffers by rising address, each on one below it or on 0."""
    seen = set()

    def place(floor: dict[int, int], last: int) -> bool:
        state = (tuple(floor.items()), last)
        if not floor or state in seen or any(f + buffers[i][0] > capacity for i, f in floor.items()):
            return not floor
        seen.add(state)
        for i, offset in floor.items():
            size, lower, upper = buffers[i]
            if offset >= last:
                top = offset + size
                rest = {
                    j: max(f, top) if buffers[j][1] < upper and lower < buffers[j][2] else f
                    for j, f in floor.items()
                    if j != i
                }
                if place(rest, offset):
                    return True
        return False

    return place(dict.fromkeys(range(len(buffers)), 0), 0)


def least_peaks(problem: OrderProblem) -> tuple[int, int]:
    """The lowest peak of an order, and of an order with addresses, by trying all."""
    candidates = sorted((largest_live_set(found), found) for found in {lives(problem, o) for o in orders(problem)})
    least = capacity = candidates[0][0]
    while not any(fits(found, capacity) for peak, found in candidates if peak <= capacity):
        capacity += 1
    return least, capacity


def check_joint(problem: OrderProblem, solution: JointSolution, alignment: int = 1) -> None:
    """By definition, without the solvers' checker."""
    assert order_peak(problem, solution.order) <= solution.peak
    placed = []
    for storage, size in enumerate(problem.sizes):
        at = [place for place, op in enumerate(solution.order) if storage in problem.touches[op]]
        if at and size:
            end = len(solution.order) if storage in problem.kept else at[-1] + 1
            placed.append((solution.offsets[storage], size, at[0], end))
    for op, size in enumerate(problem.scratch):
        at = [solution.order.index(op)]
        if size:
            placed.append((solution.scratch_offsets[op], size, at[0], at[0] + 1))
    for number, (x, w, a, b) in enumerate(placed):
        assert x >= 0 and x % alignment == 0 and x + w <= solution.peak
        for y, v, c, d in placed[:number]:
            assert b <= c or d <= a or x + w <= y or y + v <= x


def test_it_is_listed() -> None:
    assert "ilp" in order_solver_names()


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_optimum_of_order_and_of_both_proven(first: int) -> None:
    for seed in range(first, first + 20):
        problem = draw(seed)
        least, least_placed = least_peaks(problem)
        ordered, joint = solve_order(problem, "ilp"), solve_joint(problem)
        assert ordered.peak == ordered.lower_bound == order_peak(problem, ordered.order) == least, f"seed {seed}"
        check_joint(problem, joint)
        assert joint.peak == joint.lower_bound == least_placed, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_the_optimum_on_many(first: int) -> None:
    for start in range(first, first + 100, 20):
        test_the_optimum_of_order_and_of_both_proven(start)


@pytest.mark.parametrize("seed", range(20))
def test_the_programs_alone(seed: int) -> None:
    """Without a good start, bounds or decided pairs, as the paper states them."""
    problem = draw(seed)
    reduced = reduce_problem(problem)
    ops, total = range(len(reduced.ops)), int(reduced.sizes.sum())
    for kind, least in zip((OrderProgram, JointProgram), least_peaks(problem)):
        found = kind(reduced, reduced.before, ops, 0, total).solve(Limit(None), range(len(problem.touches)))
        assert found.order is not None
        assert found.bound * reduced.unit == least
        peak = order_peak(problem, reduced.complete(found.order))
        assert peak == least if kind is OrderProgram else peak <= least


@pytest.mark.parametrize("seed", range(16))
def test_decided_pairs_hold_in_every_order_within_the_bound(seed: int) -> None:
    problem = draw(seed, 6)
    reduced = reduce_problem(problem)
    place = {op: at for at, op in enumerate(reduced.ops)}
    peaks = {order: order_peak(problem, order) // reduced.unit for order in orders(problem)}
    for most in sorted({*peaks.values(), min(peaks.values()) - 1, max(peaks.values()) - 1}):
        before = decide_pairs(reduced, most)
        # Moving the ops left out to their best places never raises a peak.
        within = {tuple(place[op] for op in order if op in place) for order, peak in peaks.items() if peak <= most}
        if before is None:
            assert not within
            continue
        for order in within:
            assert not any(before[v, u] for at, v in enumerate(order) for u in order[:at])


@pytest.mark.parametrize("seed", range(8))
def test_larger_graphs(seed: int) -> None:
    problem = next(p for p in (draw(1000 * seed + i, 30) for i in range(100)) if len(p.touches) > 24)
    solution = solve_order(problem, "ilp")
    assert order_peak(problem, solution.order) == solution.peak <= solve_order(problem, "auto").peak
    assert solution.lower_bound <= solution.peak
    assert solve_order(problem, "ilp") == solution


@pytest.mark.parametrize("seed", range(12))
def test_joint_alignment(seed: int) -> None:
    problem = draw(seed)
    joint = solve_joint(problem, alignment=4)
    check_joint(problem, joint, 4)
    up = replace(
        problem, sizes=[-(-s // 4) * 4 for s in problem.sizes], scratch=[-(-s // 4) * 4 for s in problem.scratch]
    )
    assert joint.peak == joint.lower_bound == least_peaks(up)[1]


def test_independent_parts() -> None:
    before = np.zeros((6, 6), np.bool_)
    # 0 and 3 in any order, then 1, then 2, 4 and 5 with only 2 before 4.
    for u, v in [(0, 1), (3, 1), (1, 2), (1, 4), (1, 5), (2, 4)]:
        before[u, v] = True
    assert [sorted(part) for part in independent_parts(transitive(before))] == [[0, 3], [1], [2, 4, 5]]


def test_no_ops() -> None:
    empty = OrderProblem([7], [], [], frozenset({0}))
    assert solve_order(empty, "ilp").proven_optimal
    assert solve_joint(empty) == JointSolution((), (0,), (), 0, 0)


def test_what_overflows_is_refused() -> None:
    # Neither order meets the bound of the largest op, so the heuristics prove nothing.
    wide = OrderProblem([2**52, 2**52 + 1, 3, 5], [[0, 2], [1, 3], [2, 3]], [[], [], [0, 1]])
    with pytest.raises(ValueError, match=r"ilp: sizes sum to \d+ units of 1 bytes, beyond 2\^53"):
        reduce_problem(wide)


def test_malformed() -> None:
    with pytest.raises(ValueError, match="op 0: storage index 1 is not in"):
        solve_order(OrderProblem([1], [[1]], [[]]), "ilp")
    with pytest.raises(ValueError, match="op 0 depends on op 1"):
        solve_joint(OrderProblem([1], [[0], [0]], [[1], []]))


@pytest.mark.parametrize("seed", range(10))
def test_time_that_is_up_anywhere_leaves_a_bound(seed: int) -> None:
    """Whichever look at the clock is the first too late, what is known until then holds."""
    problem = draw(seed)
    reduced = reduce_problem(problem)
    least, high = least_peaks(problem)[0] // reduced.unit, int(reduced.sizes.sum())
    bounds = []
    for looks in range(60):
        left = iter(range(looks))

        def look(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Expired

        bounds.append(least_undecided(reduced, 0, high, look))
    assert bounds == sorted(bounds) and bounds[-1] <= least
    if reduced.ops:
        assert bounds[0] == 0
        with pytest.raises(Expired):
            decide_pairs(reduced, high, look=look_at_nothing_left)


def look_at_nothing_left() -> None:
    raise Expired


def test_without_time_the_bound_is_still_honest() -> None:
    for seed in range(20):
        problem = draw(seed)
        solution = solve_order(problem, "ilp", time_limit=0.0)
        assert solution.lower_bound <= least_peaks(problem)[0] <= solution.peak == order_peak(problem, solution.order)
