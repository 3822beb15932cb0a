# SPDX-License-Identifier: Apache-2.0
"""What the bytes of a space hold and which copies have touched them, for the detector of races."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ..core import Op

Clock = list[int]
"""For each lane, how many of its copies are over."""


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy that a start has begun."""

    index: int
    """Of the start among the function's ops."""
    op: Op
    lane: int
    time: int
    """Its number among the copies of its lane, from 1 on."""
    clock: Clock
    """What is over when it is."""


class Segment:
    """Bytes [begin, end) of a space that one content fills, and the copies that have touched them since."""

    __slots__ = ("base", "begin", "content", "end", "readers", "writer")

    def __init__(
        self, begin: int, end: int, content: int, base: int, writer: Copy | None, readers: tuple[Copy, ...]
    ) -> None:
        self.begin = begin
        self.end = end
        self.content = content
        self.base = base
        """The offset in the content of the space's byte 0."""
        self.writer = writer
        self.readers = readers

    def part(self, begin: int, end: int) -> Segment:
        return Segment(begin, end, self.content, self.base, self.writer, self.readers)


class Contents:
    """The segments of one space, sorted, without overlaps."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.segments: list[Segment] = []

    def clear(self) -> None:
        """Hold nothing."""
        self.begins.clear()
        self.segments.clear()

    def meeting(self, begin: int, end: int) -> tuple[int, int]:
        """The numbers of the segments that have bytes of [begin, end), as a half-open range."""
        begins, segments = self.begins, self.segments
        first = bisect_right(begins, begin) - 1
        if first < 0 or segments[first].end <= begin:
            first += 1
        last, count = first, len(begins)
        while last < count and begins[last] < end:
            last += 1
        return first, last

    def replace(self, begin: int, end: int, first: int, last: int, *new: Segment) -> None:
        """Put `new` segments into [begin, end), which those numbered [first, last) meet."""
        segments = self.segments
        found = list(new)
        if first < last:
            low, high = segments[first], segments[last - 1]
            if low.begin < begin:
                found.insert(0, low.part(low.begin, begin))
            if high.end > end:
                found.append(high.part(end, high.end))
        segments[first:last] = found
        self.begins[first:last] = [segment.begin for segment in found]

    def fill(self, begin: int, end: int, first: int, last: int, content: int, base: int, writer: Copy | None) -> None:
        """A content takes the place of what bytes [begin, end) held, in the segments [first, last)."""
        if last - first == 1:
            segment = self.segments[first]
            if segment.begin == begin and segment.end == end:
                segment.content, segment.base, segment.writer, segment.readers = content, base, writer, ()
                return
        self.replace(begin, end, first, last, Segment(begin, end, content, base, writer, ()))

    def note(self, begin: int, end: int, first: int, last: int, copy: Copy) -> None:
        """A copy reads bytes [begin, end), which the segments [first, last) fill."""
        new = []
        for segment in self.segments[first:last]:
            part = segment.part(max(segment.begin, begin), min(segment.end, end))
            part.readers = (*(other for other in part.readers if other.lane != copy.lane), copy)
            new.append(part)
        self.replace(begin, end, first, last, *new)
