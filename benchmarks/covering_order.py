# SPDX-License-Identifier: Apache-2.0
"""An order of cases in which the first ones have every combination of values of any two or three of their fields."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TypeVar

Case = TypeVar("Case", bound=tuple[object, ...])


def combinations_of(case: tuple[object, ...], width: int) -> list[tuple[tuple[int, object], ...]]:
    """Each `width` fields of a case with their values."""
    return list(combinations(enumerate(case), width))


def covering_order(cases: Sequence[Case], width: int, done: Iterable[tuple[object, ...]] = ()) -> list[Case]:
    """The cases: greedily, next is the one with the most combinations of `width` values that neither those before it nor
    `done` have, and of those with as many, the earliest; once every combination is there, the rest as they were given."""
    left = {each for case in cases for each in combinations_of(case, width)}
    left.difference_update(each for case in done for each in combinations_of(case, width))
    new = [sum(each in left for each in combinations_of(case, width)) for case in cases]
    queue = [(-count, number) for number, count in enumerate(new)]
    heapq.heapify(queue)
    first: list[int] = []
    while left and queue:
        negated, number = heapq.heappop(queue)
        found = [each for each in combinations_of(cases[number], width) if each in left]
        if len(found) < -negated:  # Counts only fall, so the largest that still holds is the largest.
            heapq.heappush(queue, (-len(found), number))
            continue
        left.difference_update(found)
        first.append(number)
    taken = set(first)
    return [cases[number] for number in first] + [case for number, case in enumerate(cases) if number not in taken]
