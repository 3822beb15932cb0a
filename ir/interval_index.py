# SPDX-License-Identifier: Apache-2.0
"""Items by half-open intervals of bytes: those that meet a given one are found without a look at all of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

FEW = 16
"""Items up to which they are looked at one by one, which is faster than an index."""

Entry = tuple[int, int, int]
"""Where an interval begins and ends (bytes), and the number of its item."""


class IntervalIndex(Generic[T]):
    """Items with intervals of bytes, which may overlap. `items` has them by numbers, in the order in which they were added.

    From `FEW` on the intervals are sorted, those of each size class by itself: one that overlaps a given one begins at most
    twice the class's size before it, so that few others are met.
    """

    __slots__ = ("_classes", "_next", "items")

    def __init__(self) -> None:
        self.items: dict[int, tuple[int, int, T]] = {}
        self._classes: dict[int, list[Entry]] | None = None
        self._next = 0

    def __len__(self) -> int:
        return len(self.items)

    def add(self, low: int, high: int, item: T) -> None:
        """Put an item on the bytes [low, high)."""
        number = self._next
        self._next += 1
        self.items[number] = (low, high, item)
        if self._classes is not None:
            insort(self._classes.setdefault((high - low).bit_length(), []), (low, high, number))
        elif len(self.items) > FEW:
            self._classes = {}
            for each, (begin, end, _) in self.items.items():
                self._classes.setdefault((end - begin).bit_length(), []).append((begin, end, each))
            for entries in self._classes.values():
                entries.sort()

    def near(self, low: int, high: int) -> Iterator[int]:
        """The numbers of the items on [low, high), and of some that are near it, in any order. Items may be removed
        meanwhile, but none added."""
        if self._classes is None:
            yield from list(self.items)
            return
        for size, entries in self._classes.items():
            first, last = bisect_left(entries, (low - (1 << size),)), bisect_left(entries, (high,))
            yield from [number for _, _, number in entries[first:last]]

    def over(self, low: int, high: int) -> list[int]:
        """The numbers of the items that share a byte with [low, high), in the order in which they were added."""
        found = []
        for number in self.near(low, high):
            begin, end, _ = self.items[number]
            if max(begin, low) < min(end, high):
                found.append(number)
        return sorted(found)

    def remove(self, number: int) -> None:
        """Forget an item."""
        low, high, _ = self.items.pop(number)
        if self._classes is not None:
            entries = self._classes[(high - low).bit_length()]
            del entries[bisect_left(entries, (low, high, number))]
