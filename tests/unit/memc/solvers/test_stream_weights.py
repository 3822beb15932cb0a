# SPDX-License-Identifier: Apache-2.0
"""The native search for streamed weights against the definition of a plan, and against every plan of small problems."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from memc.solvers.lane_clock import LaneClock
from memc.solvers.offload import Lane, Lanes
from memc.solvers.stream_weights import Item, StreamPlan, StreamProblem, Window, least_streamed, stream_ladder

TAKEN = ((0, 0), (30, 0), (50, 40))
"""What copies take ops: `sync` and `drag` of lanes."""


def network(seed: int, weights: int = 6, copies: bool = False) -> StreamProblem:
    """Layers of some ops, of which the first reads a weight, and now and then one that was read before. With `copies` a value leaves
    and comes back beside them."""
    chosen = random.Random(seed)
    items: list[tuple[Item, int]] = []
    uses: list[list[int]] = [[] for _ in range(weights)]
    for weight in range(weights):
        uses[weight].append(len(items))
        if weight and chosen.random() < 0.3:
            uses[chosen.randrange(weight)].append(len(items))
        items += [(Item.RUN, chosen.randrange(1, 2000)) for _ in range(chosen.randrange(1, 4))]
    if copies:
        out, back = len(items) // 4, len(items) // 2
        added = ((back + 1, Item.IN_DONE, back), (back, Item.IN_START, 512), (out + 2, Item.OUT_DONE, out))
        for at, kind, number in (*added, (out, Item.OUT_START, 512)):
            shift = (out + 2 <= back) + (out <= back) if kind in (Item.IN_DONE, Item.IN_START) else 0
            items.insert(at, (kind, number + (shift if kind is Item.IN_DONE else 0)))
            uses = [[use + (use >= at) for use in its] for its in uses]
        starts = {kind: n for n, (kind, _) in enumerate(items)}
        items[starts[Item.IN_DONE]] = (Item.IN_DONE, starts[Item.IN_START])
        items[starts[Item.OUT_DONE]] = (Item.OUT_DONE, starts[Item.OUT_START])
    lane = Lane(
        chosen.choice((0, 10, 200)), 1 << chosen.choice((20, 21, 22)), chosen.choice((1024, 512)), *TAKEN[seed % 3]
    )
    return StreamProblem(
        [kind for kind, _ in items],
        [number for _, number in items],
        [64 * chosen.randrange(1, 12) for _ in items],
        [64 * chosen.randrange(1, 16) for _ in range(weights)],
        [sorted(set(its)) for its in uses],
        Lanes(lane, lane),
    )


def measured(problem: StreamProblem, windows: tuple[Window, ...]) -> tuple[int, int, int]:
    """Peak, makespan and bytes of a plan, by definition."""
    clock = LaneClock(problem.lanes)
    started: dict[int, int] = {}
    copies: dict[Window, int] = {}
    peak = 0
    streamed = {window.weight for window in windows}
    resident = sum(size for weight, size in enumerate(problem.sizes) if weight not in streamed)
    forked = False
    for at, (kind, number) in enumerate(zip(problem.items, problem.numbers)):
        for window in windows:
            if window.start == at:
                copies[window] = clock.issue("in", problem.sizes[window.weight], forked)
                forked = True
        waited = [window for window in windows if window.wait == at]
        if waited:
            clock.wait("in", copies[waited[-1]])
        if waited or (kind is Item.RUN and number):
            forked = False
        there = sum(problem.sizes[w.weight] for w in windows if w.start <= at <= w.last)
        peak = max(peak, problem.live[at] + there + resident)
        if kind is Item.RUN:
            clock.run(number)
        elif kind in (Item.OUT_START, Item.IN_START):
            started[at] = clock.issue("out" if kind is Item.OUT_START else "in", number)
        else:
            clock.wait("out" if kind is Item.OUT_DONE else "in", started[number])
    return peak, clock.now, sum(problem.sizes[w.weight] for w in windows)


def every_plan(problem: StreamProblem) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Weight, first and last use of the windows: each weight resident, or with any of the times between its uses away."""

    def ways(weight: int) -> list[tuple[tuple[int, int, int], ...]]:
        uses, found = problem.uses[weight], [()]
        for away in product((False, True), repeat=len(uses) - 1):
            cuts = [0, *(n + 1 for n, cut in enumerate(away) if cut), len(uses)]
            found.append(tuple((weight, uses[a], uses[b - 1]) for a, b in zip(cuts, cuts[1:])))
        return found

    for chosen in product(*(ways(weight) for weight in range(len(problem.sizes)))):
        yield tuple(sorted((w for its in chosen for w in its), key=lambda w: (w[1], w[2], w[0])))


def quickest(problem: StreamProblem, limit: int) -> int | None:
    """The least makespan within a limit, of every set of windows whose copies start as soon as there is room."""
    best = None
    for windows in every_plan(problem):
        streamed = {weight for weight, _, _ in windows}
        resident = sum(size for weight, size in enumerate(problem.sizes) if weight not in streamed)
        taken = [live + resident for live in problem.live]
        if max(taken) > limit:
            continue
        at, placed = 0, []
        for weight, first, last in windows:
            size = problem.sizes[weight]
            while at <= first and max(taken[at : last + 1]) + size > limit:
                at += 1
            if at > first:
                break
            taken[at : last + 1] = [t + size for t in taken[at : last + 1]]
            placed.append(Window(weight, at, first, first, last))
        else:
            _, makespan, _ = measured(problem, tuple(placed))
            best = makespan if best is None else min(best, makespan)
    return best


def within(plans: list[StreamPlan], limit: int) -> StreamPlan:
    return min((plan for plan in plans if plan.peak <= limit), key=lambda plan: (plan.makespan, plan.bytes))


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_figures_are_those_of_the_definition(seed: int, copies: bool) -> None:
    problem = network(seed, 12, copies)
    plans = stream_ladder(problem)
    assert len(plans) > 2
    for plan in plans:
        assert (plan.peak, plan.makespan, plan.bytes) == measured(problem, plan.windows)
        starts = [window.start for window in plan.windows]
        assert starts == sorted(starts)
        assert all(w.start <= w.wait <= w.first <= w.last for w in plan.windows)
        for weight in {window.weight for window in plan.windows}:
            its = [w for w in plan.windows if w.weight == weight]
            covered = [use for w in its for use in problem.uses[weight] if w.first <= use <= w.last]
            assert covered == problem.uses[weight]
    by_peak = [(plan.peak, plan.makespan) for plan in plans]
    assert by_peak == sorted(by_peak, key=lambda each: (each[0], -each[1]))
    assert plans[-1].windows == () and plans[0].peak == least_streamed(problem)


def test_near_the_best_of_every_plan() -> None:
    gaps = []
    for seed in range(40):
        problem = network(seed, 5)
        plans = stream_ladder(problem)
        least, most = plans[0].peak, plans[-1].peak
        for share in (0, 0.25, 0.5, 0.75):
            limit = int(least + share * (most - least))
            best = quickest(problem, limit)
            assert best is not None
            gaps.append(within(plans, limit).makespan / best - 1)
            # The definition delays no copy, which may slow others, and none that starts with another one.
            assert gaps[-1] > -0.01 or problem.lanes.back.sync
    assert sum(gaps) / len(gaps) <= 0.003 and max(gaps) <= 0.03


def test_spread_over_equal_layers() -> None:
    """A lane that copies half of what ops read streams every second of equal weights, or thereabouts, without a wait."""
    layers = 64
    lane = Lane(0, 2 << 20)
    problem = StreamProblem(
        [Item.RUN] * layers,
        [1000] * layers,
        [64] * layers,
        [1000] * layers,
        [[n] for n in range(layers)],
        Lanes(lane, lane),
    )
    plan = within(stream_ladder(problem), 64 + 36 * 1000)
    assert plan.makespan == 1000 * layers
    assert 28 <= len(plan.windows) <= 31
    gaps = [b.first - a.first for a, b in zip(plan.windows, plan.windows[1:])]
    assert max(gaps) <= 3
    bound = 48 * 1000 * 2
    assert bound <= within(stream_ladder(problem), 64 + 16 * 1000).makespan <= 1.1 * bound


def test_a_weight_of_many_uses_is_copied_as_often_as_it_pays() -> None:
    """Between its uses by pairs of ops there is much time, in which another weight takes its bytes."""
    lane = Lane(0, 1 << 20)
    costs = [10, 10, 5000, 10, 10, 5000, 10, 10, 5000]
    problem = StreamProblem(
        [Item.RUN] * 9, costs, [100] * 9, [1000, 900], [[0, 1, 3, 4, 6, 7], [2, 5, 8]], Lanes(lane, lane)
    )
    plans = stream_ladder(problem)
    assert plans[0].peak == least_streamed(problem) == 1100
    assert sorted((w.weight, w.first, w.last) for w in plans[0].windows if w.weight == 0) == [
        (0, 0, 1),
        (0, 3, 4),
        (0, 6, 7),
    ]
    assert plans[-1].peak == 2000


def test_copies_are_grouped_where_ops_would_be_held() -> None:
    """Layers of four small weights: where each fork and join takes ops time, a layer's copies start and are waited for together."""
    layers = 16
    uses = [[4 * n + i] for n in range(layers) for i in range(4)]
    lane = Lane(0, 1 << 20, 1024, 100, 0)
    problem = StreamProblem(
        [Item.RUN] * (4 * layers), [500] * 4 * layers, [64] * 4 * layers, [300] * len(uses), uses, Lanes(lane, lane)
    )
    plan = within(stream_ladder(problem), 64 + 20 * 300)
    assert len(plan.windows) >= 44
    assert len({w.wait for w in plan.windows}) <= 24 and len({w.start for w in plan.windows}) <= 24
    assert plan.makespan <= 500 * 4 * layers + 24 * 100 + 300 * 4
    assert (plan.peak, plan.makespan, plan.bytes) == measured(problem, plan.windows)


def test_the_host_budget_limits_what_is_streamed() -> None:
    problem = network(3, 10)
    limited = replace(problem, host_budget=sum(problem.sizes) // 3)
    plans = stream_ladder(limited)
    streamed = [sum(problem.sizes[w] for w in {w.weight for w in plan.windows}) for plan in plans]
    assert 0 < max(streamed) <= sum(problem.sizes) // 3
    assert plans[0].peak > stream_ladder(problem)[0].peak


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"numbers": [1]}, "numbers"),
        ({"sizes": [0] * 6}, "weights with bytes and uses"),
        ({"uses": [[]] * 6}, "weights with bytes and uses"),
        ({"uses": [[1, 0]] * 6}, "ascending order"),
        ({"uses": [[999]] * 6}, "ascending order"),
    ],
)
def test_malformed_problems(change: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        stream_ladder(replace(network(0), **change))  # type: ignore[arg-type]
