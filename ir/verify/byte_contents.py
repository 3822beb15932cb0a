# SPDX-License-Identifier: Apache-2.0
"""What the bytes of a space hold and which copies have touched them, for the checkers of plans."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memc.ir.core import Op, Value

Piece = tuple[Value, int, int]
"""`length` bytes of `origin` from `offset` on, as (origin, offset, length)."""

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
    """Bytes [begin, end) of a space that one origin fills, and the copies that have touched them since."""

    __slots__ = ("base", "begin", "end", "origin", "readers", "writer")

    def __init__(
        self,
        begin: int,
        end: int,
        origin: Value | None,
        base: int,
        writer: Copy | None = None,
        readers: tuple[Copy, ...] = (),
    ) -> None:
        self.begin = begin
        self.end = end
        self.origin = origin
        """None once the segment is in its space no more, as something else fills a part of it."""
        self.base = base
        """The offset in the origin of the space's byte 0."""
        self.writer = writer
        self.readers = readers

    def part(self, begin: int, end: int) -> Segment:
        """Some of its bytes."""
        return Segment(begin, end, self.origin, self.base, self.writer, self.readers)


class Contents:
    """The segments of one space, sorted, without overlaps."""

    __slots__ = ("begins", "segments", "space")

    def __init__(self, space: object) -> None:
        self.space = space
        """A name, or the storage that lies apart from all others."""
        self.begins: list[int] = []
        self.segments: list[Segment] = []

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

    def whole(self, begin: int, end: int) -> Segment | None:
        """The segment of exactly these bytes, if there is one."""
        first = bisect_right(self.begins, begin) - 1
        if first >= 0:
            segment = self.segments[first]
            if segment.begin == begin and segment.end == end:
                return segment
        return None

    def fill(self, begin: int, end: int, origin: Value, base: int, writer: Copy | None = None) -> Segment:
        """The segment of an origin that takes the place of what bytes [begin, end), at least one, held."""
        first = bisect_right(self.begins, begin) - 1
        if first >= 0:
            segment = self.segments[first]
            if segment.begin == begin and segment.end == end:
                segment.origin, segment.base, segment.writer, segment.readers = origin, base, writer, ()
                return segment
        segment = Segment(begin, end, origin, base, writer)
        self.replace(begin, end, *self.meeting(begin, end), [segment])
        return segment

    def replace(self, begin: int, end: int, first: int, last: int, new: list[Segment]) -> None:
        """Put `new` segments into [begin, end), which those numbered [first, last) meet."""
        segments = self.segments
        if first < last:
            low, high = segments[first], segments[last - 1]
            if low.begin < begin:
                new.insert(0, low.part(low.begin, begin))
            if high.end > end:
                new.append(high.part(end, high.end))
            for segment in segments[first:last]:
                segment.origin = None
        segments[first:last] = new
        self.begins[first:last] = [segment.begin for segment in new]

    def note(self, begin: int, end: int, copy: Copy) -> None:
        """A copy reads bytes [begin, end)."""
        found = self.whole(begin, end)
        if found is not None:
            found.readers = _with_reader(found.readers, copy)
            return
        first, last = self.meeting(begin, end)
        new = [s.part(max(s.begin, begin), min(s.end, end)) for s in self.segments[first:last]]
        for segment in new:
            segment.readers = _with_reader(segment.readers, copy)
        self.replace(begin, end, first, last, new)


def _with_reader(readers: tuple[Copy, ...], copy: Copy) -> tuple[Copy, ...]:
    """Earlier copies of one lane are over before later ones."""
    return (*(other for other in readers if other.lane != copy.lane), copy) if readers else (copy,)


class Place:
    """Where a value lies, and what it consists of once it is made."""

    __slots__ = ("begin", "contents", "end", "origin", "pieces", "segment", "value")

    def __init__(self, value: Value, contents: Contents, begin: int, end: int) -> None:
        self.value = value
        self.contents = contents
        self.begin = begin
        self.end = end
        self.pieces: list[Piece] | None = None
        """In their order, from `begin` on; None until the value is made."""
        self.origin: Value | None = None
        self.segment: Segment | None = None
        """One that held the value whole; it does as long as it has `origin`, since the bytes of a segment never change
        while it stays in its space."""

    def overlaps(self, other: Place) -> bool:
        """Whether any byte is of both."""
        return self.contents is other.contents and max(self.begin, other.begin) < min(self.end, other.end)

    def fill(self, writer: Copy | None = None) -> None:
        """The value is made: all of its bytes are its own."""
        begin, end = self.begin, self.end
        self.pieces = [(self.value, 0, end - begin)]
        if begin < end:
            self.segment, self.origin = self.contents.fill(begin, end, self.value, -begin, writer), self.value

    def take(self, segment: Segment, writer: Copy | None) -> None:
        """The value is made, in just the bytes of a segment that no copy has touched."""
        value = self.value
        self.pieces = [(value, 0, self.end - self.begin)]
        segment.origin, segment.base, segment.writer = value, -self.begin, writer
        self.segment, self.origin = segment, value

    def look(self, source: Place, offset: int) -> None:
        """The value is made: it is bytes of another one, which has been made, from `offset` on."""
        assert source.pieces is not None
        self.pieces = part_of(source.pieces, offset, self.end - self.begin)
        if self.contents is source.contents and source.begin <= self.begin and self.end <= source.end:
            self.segment, self.origin = source.segment, source.origin

    def find(self, pieces: Sequence[Piece]) -> tuple[list[Segment], int | None]:
        """The segments that hold `pieces`, as far as they lie where the value does, and the first address that holds anything else;
        None if all do."""
        contents, at = self.contents, self.begin
        found: list[Segment] = []
        for origin, offset, length in pieces:
            end, base = at + length, offset - at
            first, last = contents.meeting(at, end) if length else (0, 0)
            for segment in contents.segments[first:last]:
                if segment.begin > at or segment.origin is not origin or segment.base != base:
                    break
                found.append(segment)
                at = min(end, segment.end)
            if at < end:
                return found, at
        if pieces is self.pieces and len(found) == 1 and found[0].end >= self.end:
            self.segment, self.origin = found[0], found[0].origin
        return found, None


def part_of(pieces: Iterable[Piece], begin: int, length: int) -> list[Piece]:
    """Bytes [begin, begin + length) of pieces one after another."""
    found: list[Piece] = []
    at, end = 0, begin + length
    for origin, offset, size in pieces:
        low, high = max(begin, at), min(end, at + size)
        if low < high:
            found.append((origin, offset + low - at, high - low))
        at += size
    return found


def joined(result: Value, kept: Iterable[tuple[int, Sequence[Piece]]]) -> list[Piece]:
    """What a result consists of in which some operands lie already: theirs from those bytes on, and its own elsewhere."""
    pieces: list[Piece] = []
    at = 0
    for offset, inner in sorted(kept, key=lambda item: item[0]):
        if offset > at:
            pieces.append((result, at, offset - at))
        pieces += inner
        at = offset + sum(length for _, _, length in inner)
    if result.type.nbytes > at:
        pieces.append((result, at, result.type.nbytes - at))
    return pieces
