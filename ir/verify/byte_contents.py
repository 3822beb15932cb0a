# SPDX-License-Identifier: Apache-2.0
"""What the bytes of a space hold, for the checker of plans."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from memc.ir.core import Value

Piece = tuple[Value, int, int]
"""`length` bytes of `origin` from `offset` on, as (origin, offset, length)."""


class Memory:
    """What the bytes of one space hold: segments [start, end) with their content, sorted, without overlaps."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.segments: list[tuple[int, int, Value, int]] = []
        """Start, end, origin, and the offset in the origin of the segment's first byte."""

    def write(self, start: int, pieces: Iterable[Piece]) -> None:
        """Put `pieces` one after another from address `start` on."""
        new: list[tuple[int, int, Value, int]] = []
        at = start
        for origin, offset, length in pieces:
            if length:
                new.append((at, at + length, origin, offset))
            at += length
        if at == start:
            return
        first = max(bisect_right(self.starts, start) - 1, 0)
        while first < len(self.segments) and self.segments[first][1] <= start:
            first += 1
        last = first
        while last < len(self.segments) and self.segments[last][0] < at:
            last += 1
        kept = self.segments[first:last]
        if kept and kept[0][0] < start:
            low, _, origin, offset = kept[0]
            new.insert(0, (low, start, origin, offset))
        if kept and kept[-1][1] > at:
            low, high, origin, offset = kept[-1]
            new.append((at, high, origin, offset + at - low))
        self.segments[first:last] = new
        self.starts[first:last] = [segment[0] for segment in new]

    def held(self, start: int, end: int) -> Value | None:
        """The first of what bytes [start, end) hold; None if nothing."""
        return next((origin for low, high, origin, _ in self.segments if max(low, start) < min(high, end)), None)

    def lost(self, start: int, pieces: Iterable[Piece]) -> tuple[int, Value | None] | None:
        """The first address from `start` on that does not hold `pieces`, with what it holds; None if all do."""
        at = start
        for origin, offset, length in pieces:
            end = at + length
            while at < end:
                index = bisect_right(self.starts, at) - 1
                if index < 0 or self.segments[index][1] <= at:
                    return at, None
                low, high, held, held_offset = self.segments[index]
                if held is not origin or held_offset - low != offset - (end - length):
                    return at, held
                at = min(end, high)
        return None
