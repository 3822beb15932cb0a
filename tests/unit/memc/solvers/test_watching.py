# SPDX-License-Identifier: Apache-2.0
"""Searches that tell how far they have come, and end when they are asked to."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memc.ir.progress import Reached, listening
from memc.solvers.offload import Lane, Lanes, OffloadProblem, offload_ladder
from memc.solvers.order import OrderProblem, solve_order
from memc.solvers.placement import Buffer, Problem, solve
from memc.solvers.recompute import RecomputeProblem, recompute_ladder
from memc.solvers.watching import watched

LATE = 20.0
"""Seconds after which a search that was to end counts as one that did not."""


class Enough(Exception):
    """A listener has heard what it wanted."""


def hard_placement() -> Problem:
    """Buffers for which no search proves in a second that a plan is the best."""
    draw = random.Random(3)
    begins = [draw.randrange(400) for _ in range(700)]
    return Problem([Buffer(draw.randrange(1, 5000), at, at + draw.randrange(1, 90)) for at in begins], alignment=1)


def hard_order() -> OrderProblem:
    """Ops of which each reads two of the others, at random."""
    draw = random.Random(5)
    ops, width = 1200, 60
    touches, after = [], []
    for op in range(ops):
        reads = sorted({draw.randrange(max(0, op - width), op) for _ in range(2)}) if op else []
        touches.append([op, *reads])
        after.append(reads)
    return OrderProblem([draw.randrange(1, 10_000) for _ in range(ops)], touches, after)


def chain(ops: int) -> RecomputeProblem:
    """A training step: a chain, and back along it."""
    forward = [[] if op == 0 else [op - 1] for op in range(ops)]
    backward = [sorted({op - 1, 2 * ops - 1 - op}) for op in range(ops, 2 * ops)]
    total = 2 * ops
    return RecomputeProblem(
        sizes=[1000 + 37 * (op % 13) for op in range(total)],
        costs=[10 + op % 7 for op in range(total)],
        once=[False] * total,
        scratch=[0] * total,
        reads=[*forward, *backward],
        makes=[[op] for op in range(total)],
        over=[[]] * total,
        parts=[[]] * total,
        until=[[]] * total,
    )


def copied(ops: int) -> OffloadProblem:
    problem = chain(ops)
    lane = Lane(latency=1, per_mib=100_000)
    return OffloadProblem(problem, [True] * len(problem.sizes), Lanes(lane, lane))


SEARCHES: dict[str, Callable[[], Any]] = {
    "addresses": lambda: solve(hard_placement(), "auto", time_limit=LATE * 3),
    "order": lambda: solve_order(hard_order(), "auto", time_limit=LATE * 3),
    "recomputation": lambda: recompute_ladder(chain(1500), 1),
    "recomputation and copies": lambda: offload_ladder(copied(800), 1),
}


@pytest.mark.parametrize("work", SEARCHES)
def test_a_listener_hears_of_a_search_and_ends_it(work: str) -> None:
    heard: list[Reached] = []

    def listen(reached: Reached) -> None:
        heard.append(reached)
        if len(heard) == 4:
            raise Enough

    began = time.monotonic()
    with listening(listen), pytest.raises(Enough):
        SEARCHES[work]()
    assert time.monotonic() - began < LATE
    assert [each.work for each in heard] == [work] * 4
    shares = [each.share for each in heard if each.share is not None]
    assert shares and shares == sorted(shares) and all(0 <= share <= 1 for share in shares)


def test_addresses_tell_bytes_and_time() -> None:
    heard: list[Reached] = []
    with listening(heard.append):
        solution = solve(hard_placement(), "auto", time_limit=1.0)
    last = heard[-1]
    assert last.best is not None and last.bound is not None and last.seconds_left is not None
    assert solution.lower_bound <= solution.peak <= last.best
    assert 0 <= last.bound <= solution.lower_bound
    assert last.seconds_left < 0.5 and last.share is not None and last.share > 0.5
    found = [each.best for each in heard if each.best is not None]
    assert all(after <= before for before, after in itertools.pairwise(found))


def test_orders_tell_bytes() -> None:
    heard: list[Reached] = []
    with listening(heard.append):
        solution = solve_order(hard_order(), "auto", time_limit=1.0)
    best = heard[-1].best
    assert best is not None and solution.peak <= best


def test_being_watched_changes_no_plan() -> None:
    problem = hard_order()
    silent = solve_order(problem, "auto", work=20_000_000)
    with listening(lambda reached: None):
        assert solve_order(problem, "auto", work=20_000_000) == silent


def test_what_is_raised_is_raised_here() -> None:
    def fail(watch: Any) -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        watched("x", fail)


def test_a_call_off_the_main_thread_is_made_there() -> None:
    threads: list[threading.Thread] = []

    def note(watch: Any) -> None:
        threads.append(threading.current_thread())

    caller = threading.Thread(target=watched, args=("x", note))
    caller.start()
    caller.join()
    assert threads == [caller]


def test_an_exact_program_ends_with_its_listener() -> None:
    heard: list[Reached] = []

    def listen(reached: Reached) -> None:
        heard.append(reached)
        raise Enough

    began = time.monotonic()
    with listening(listen), pytest.raises(Enough):
        solve(hard_placement(), "mip", time_limit=LATE * 3)
    assert heard and time.monotonic() - began < LATE


def test_numbers_of_a_watch_are_checked() -> None:
    from memc import native
    from memc.solvers.arrays import tensor
    from memc.solvers.recompute import columns

    with pytest.raises(ValueError, match="watch has 2 elements, expected 5"):
        native.load()["memc_recompute_ladder"](columns(chain(3), tensor(np.zeros(2, np.int64))), 1, 0)
