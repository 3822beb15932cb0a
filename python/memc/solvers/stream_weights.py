# SPDX-License-Identifier: Apache-2.0
"""Typed doors to the native search for weights that are copied in for the ops that read them. See
`cpp/solvers/offload/stream_schedule.h` for what a plan means."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np

from memc import native
from memc.solvers.arrays import tensor
from memc.solvers.offload import Lanes, lane_numbers
from memc.solvers.watching import Watch, watched


class Item(enum.IntEnum):
    """What an item of a function is."""

    RUN = 0
    OUT_START = 1
    OUT_DONE = 2
    IN_START = 3
    IN_DONE = 4


@dataclass(frozen=True)
class StreamProblem:
    """A function whose weights may be resident, or copied into the arena for the items that read them."""

    items: Sequence[Item]
    numbers: Sequence[int]
    """Of an op its picoseconds, of a start its bytes, of a done the item of its start."""
    live: Sequence[int]
    """Bytes that each item takes beside weights."""
    sizes: Sequence[int]
    """Bytes of each weight that may be streamed."""
    uses: Sequence[Sequence[int]]
    """The items that read each, in ascending order."""
    lanes: Lanes
    host_budget: int | None = None
    """Bytes of streamed weights; None for any number."""


@dataclass(frozen=True)
class Window:
    """The bytes of a weight in the arena, from the start of a copy in to the last of some of its uses."""

    weight: int
    start: int
    """The item in front of which the copy starts."""
    wait: int
    """The item in front of which it is waited for."""
    first: int
    last: int
    """The uses for which it is there."""


@dataclass(frozen=True)
class StreamPlan:
    """Which weights are streamed, and when."""

    windows: tuple[Window, ...]
    """In the order of their copies. A weight without any is resident."""
    peak: int
    """Bytes of items, resident weights and windows."""
    makespan: int
    """Picoseconds."""
    bytes: int
    """That the windows' copies move."""


def stream_ladder(problem: StreamProblem) -> list[StreamPlan]:
    """Plans of which no other is as low and as quick, lowest first; the last one streams nothing. Raises ValueError for a malformed
    problem."""
    search = native.load()["memc_stream_ladder"]
    return [_plan(found) for found in watched("streamed weights", lambda watch: search(_arguments(problem, watch)))]


def least_streamed(problem: StreamProblem) -> int:
    """Bytes that no plan is below, whatever the host budget. Raises ValueError for a malformed problem."""
    return int(native.load()["memc_least_streamed"](_arguments(problem)))


def _plan(found: Any) -> StreamPlan:
    peak, makespan, nbytes, *numbers = np.frombuffer(bytes(found), np.int64).tolist()
    windows = (Window(*numbers[at : at + 5]) for at in range(0, len(numbers), 5))
    return StreamPlan(tuple(windows), peak, makespan, nbytes)


def _arguments(problem: StreamProblem, watch: Any = None) -> list[Any]:
    first = list(accumulate(map(len, problem.uses), initial=0))
    columns = (
        problem.items,
        problem.numbers,
        problem.live,
        problem.sizes,
        first,
        list(chain.from_iterable(problem.uses)),
        lane_numbers(problem.lanes, problem.host_budget),
    )
    numbers = Watch().numbers if watch is None else watch
    return [*(tensor(np.array(column, np.int64)) for column in columns), numbers]
