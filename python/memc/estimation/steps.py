# SPDX-License-Identifier: Apache-2.0
"""The steps of a job's events, of which one is hot: two in a row that ask for the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memc.ir.errors import InvalidError
from memc.replay.watched import NEVER, WatchedStep

from .events import Events, Int64s

MOST_BEFORE = 4
"""Steps that repeat each other are a quarter of the requests, at least: others come before them, once."""


@dataclass(frozen=True, eq=False)
class HotStep:
    """A step that the one after it repeats."""

    watched: WatchedStep
    """With the later free of both for each block."""
    blocks: Int64s
    """Of its requests, by their numbers in the events; `repeated` those of the step after it."""
    repeated: Int64s
    begin: int
    """The event with which the step after it begins; `end`: the one after that step, or after all."""
    end: int


def hot_step(events: Events, name: str) -> HotStep:
    """The last step that the step after it repeats.

    Steps are those that the requests' origins tell; else what the last requests repeat is taken to be a step, which begins where
    the fewest bytes of its own are live. Requests of private pools are no part of a step: they are served otherwise.
    Raises InvalidError naming `name` where no two steps in a row ask for the same.
    """
    asked = np.flatnonzero(events.makes & (events.pools == 0))
    starts = _told_starts(events, asked) or _repeated_starts(events, asked, name)
    for start, middle, end in reversed(list(zip(starts, starts[1:], starts[2:]))):
        this, next_one = asked[start:middle], asked[middle:end]
        if len(this) == len(next_one) > 0:
            first, second = step_of(events, this), step_of(events, next_one)
            if first.same_sequence(second):
                after = int(asked[end]) if end < len(asked) else len(events)
                merged = first.merged(second)
                return HotStep(merged, events.blocks[this], events.blocks[next_one], int(asked[middle]), after)
    raise InvalidError(
        f"{name}: plan: expected two steps in a row that ask for the same, got none in {max(len(starts) - 1, 0)} steps; "
        "give more steps, or leave out of the step what differs"
    )


def _told_starts(events: Events, asked: Int64s) -> list[int]:
    """Where in `asked` each step begins, and the last ends, as origins say; [] where they do not, or know of one alone."""
    told = np.array([origin.step for origin in events.origins] + [-1], np.int64)[events.origin_of[asked]]
    inner = np.flatnonzero(np.diff(told)) + 1
    return [0, *inner.tolist(), len(asked)] if len(inner) and told.min() >= 0 else []


def _repeated_starts(events: Events, asked: Int64s, name: str) -> list[int]:
    """Where in `asked` the last steps begin, and the last ends, as what repeats at the end of the events is one."""
    keys = list(zip(events.nbytes[asked].tolist(), events.streams[asked].tolist()))
    period, repeated = longest_repeat(keys)
    if not period or MOST_BEFORE * (period + repeated) < len(keys):
        raise InvalidError(
            f"{name}: plan: expected the same requests again and again at the end, got {period + repeated} of "
            f"{len(keys)} that do so; give more steps, or leave out of the step what differs"
        )
    end = len(keys) - _turn(events, asked[-2 * period :], repeated - period)
    return [start for start in (end - 3 * period, end - 2 * period, end - period, end) if start >= 0]


def longest_repeat(keys: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """How many keys a step has, and how many at the end are as those one step before, at least as many.

    Of all numbers for which the last two steps are the same, the one with the longest such stretch; 0 and 0 if there is none. By
    the Z algorithm, in linear time.
    """
    back = keys[::-1]
    n = len(back)
    same = [0] * n
    left = right = 0
    for at in range(1, n):
        length = min(right - at, same[at - left]) if at < right else 0
        while at + length < n and back[length] == back[at + length]:
            length += 1
        same[at] = length
        if at + length > right:
            left, right = at, at + length
    fitting = [p for p in range(1, n // 2 + 1) if same[p] >= p]
    period = max(fitting, key=lambda p: (same[p], -p), default=0)
    return (period, same[period]) if period else (0, 0)


def _turn(events: Events, asked: Int64s, spare: int) -> int:
    """How many of the last requests belong to a step that has only begun, at most `spare`: those after the request before which the
    fewest bytes are live that the last two steps have asked for."""
    period = len(asked) // 2
    most = min(spare, period)
    watched = step_of(events, asked)
    after = np.arange(1, 2 * period + 1)
    change = np.zeros(2 * period + 2, np.int64)
    np.add.at(change, after, watched.nbytes)
    ends = np.where(watched.freed == NEVER, after, np.minimum(watched.freed, 2 * period + 1))
    np.add.at(change, ends, -watched.nbytes)
    live = np.cumsum(change)[2 * period - most : -1]  # Before each of the last requests, and after the last one.
    return most - int(np.flatnonzero(live == live.min())[-1])


def step_of(events: Events, asked: Int64s) -> WatchedStep:
    """The step of these requests, with frees until as many requests again."""
    n = len(asked)
    counted = np.cumsum(events.makes & (events.pools == 0))
    base = int(counted[asked[0]]) - 1
    moment = counted - base
    freed_at = np.full(len(events.sizes()), NEVER, np.int64)
    freed_at[events.blocks[events.frees]] = np.flatnonzero(events.frees)
    at = freed_at[events.blocks[asked]]
    freed = np.where(at == NEVER, NEVER, moment[at])
    freed[freed > 2 * n] = NEVER
    backward = np.array([origin.phase == "backward" for origin in events.origins] + [False])[events.origin_of[asked]]
    return WatchedStep(events.nbytes[asked], _classes(events.streams[asked]), backward.astype(np.int64), freed)


def _classes(numbers: Int64s) -> Int64s:
    """Numbers by first appearance."""
    seen: dict[int, int] = {}
    return np.array([seen.setdefault(number, len(seen)) for number in numbers.tolist()], np.int64)
