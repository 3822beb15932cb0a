# SPDX-License-Identifier: Apache-2.0
"""A slow model of PyTorch's caching allocator, written from its rules and apart from `cpp/allocators/`: segments are plain lists of
blocks, everything is searched for, and byte counts are sums over all blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from memc.estimation.allocators import Caching

KIB, MIB = 2**10, 2**20
FREE, USED, WAITING, UNMAPPED = "free", "used", "waiting", "unmapped"


@dataclass(eq=False)
class Block:
    """Part of a segment."""

    address: int
    size: int
    state: str
    requested: int = 0
    since: int = 0
    streams: set[int] = field(default_factory=set)
    waits_for: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Segment:
    """Blocks side by side, in order of address."""

    pool: int
    stream: int
    small: bool
    blocks: list[Block]
    expandable: bool = False

    @property
    def base(self) -> int:
        return self.blocks[0].address

    def merge(self) -> None:
        """Neighbours that are both free, or both unmapped, become one."""
        merged: list[Block] = []
        for block in self.blocks:
            last = merged[-1] if merged else None
            if last is not None and last.state == block.state and block.state in (FREE, UNMAPPED):
                last.size += block.size
                last.since = max(last.since, block.since)
            else:
                merged.append(block)
        self.blocks = merged

    def split(self, block: Block, size: int) -> Block:
        """Cuts the block after so many bytes; the rest."""
        rest = Block(block.address + size, block.size - size, block.state, since=block.since)
        self.blocks.insert(self.blocks.index(block) + 1, rest)
        block.size = size
        return rest


class CachingModel:
    """The allocator: segments, and the clock that tells how old a free block is."""

    def __init__(self, settings: Caching, device_total: int, capacity: int) -> None:
        self.settings, self.total, self.capacity = settings, device_total, capacity
        self.segments: list[Segment] = []
        self.live: dict[int, tuple[Segment, Block] | None] = {}
        self.recorded: list[tuple[int, Block]] = []
        self.done: list[tuple[int, Block]] = []
        self.released: set[int] = set()
        self.searches: dict[tuple[int, bool], int] = {}
        self.retries = 0
        self.next_address = 2**40

    def everything(self) -> Iterator[tuple[Segment, Block]]:
        for segment in self.segments:
            for block in segment.blocks:
                yield segment, block

    def total_of(self, *states: str) -> int:
        return sum(block.size for _, block in self.everything() if block.state in states)

    @property
    def allocated(self) -> int:
        return self.total_of(USED)

    @property
    def requested(self) -> int:
        return sum(block.requested for _, block in self.everything() if block.state in (USED, WAITING))

    @property
    def reserved(self) -> int:
        return self.total_of(FREE, USED, WAITING)

    @property
    def device(self) -> int:
        return sum(map(self.taken, self.segments))

    def taken(self, segment: Segment) -> int:
        nbytes = sum(b.size for b in segment.blocks if b.state != UNMAPPED)
        unit = self.page(segment) if segment.expandable else max(nbytes, 1)
        return nbytes // unit * (-(-unit // (2 * MIB)) * 2 * MIB)

    def page(self, segment: Segment) -> int:
        return 2 * MIB if segment.small else self.settings.large_segment

    def rounded(self, nbytes: int) -> int:
        if nbytes < 512:
            return 512
        power = nbytes.bit_length() - 1
        divisions = self.settings.divisions[min(max(power - 20, 0), 15)]
        if divisions > 1 and nbytes > 512 * divisions:
            step = 2**power // divisions
            return nbytes if nbytes == 2**power else -(-nbytes // step) * step
        return -(-nbytes // 512) * 512

    def allocate(self, number: int, nbytes: int, stream: int, pool: int) -> bool:
        if nbytes == 0:
            self.live[number] = None
            return True
        if pool == 0:
            self.pass_events(everything=self.settings.events_complete)
        size = self.rounded(nbytes)
        small = size <= MIB
        segment_size = (
            2 * MIB if small else self.settings.large_segment if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        )
        found = self.search(size, stream, pool, small)
        if found is None and self.settings.memory_fraction is not None and self.settings.garbage_collection_threshold:
            self.collect_garbage()
        found = found or self.grow(size, segment_size, stream, pool, small)
        if found is None and self.free_oversize(size, stream, pool, small):
            found = self.grow(size, segment_size, stream, pool, small)
        if found is None and pool == 0:
            self.empty_cache()
            self.retries += 1
            found = self.grow(size, segment_size, stream, pool, small)
        if found is None:
            return False
        segment, block = found
        rest = block.size - size
        if small or self.settings.expandable_segments:
            cut = rest >= 512
        else:
            cut = size < self.limit and rest > MIB
        if cut:
            segment.split(block, size).since = self.searches[pool, small]
        block.state, block.requested = USED, nbytes
        self.live[number] = found
        return True

    @property
    def limit(self) -> int:
        return 2**63 if self.settings.max_split is None else self.settings.max_split

    def candidates(self, stream: int, pool: int, small: bool) -> list[tuple[Segment, Block]]:
        """The free blocks that such a request may take, the smallest first, then the lowest."""
        key = (stream, pool, small)
        found = [(s, b) for s, b in self.everything() if b.state == FREE and (s.stream, s.pool, s.small) == key]
        return sorted(found, key=lambda item: (item[1].size, item[1].address))

    def search(self, size: int, stream: int, pool: int, small: bool) -> tuple[Segment, Block] | None:
        self.searches[pool, small] = self.searches.get((pool, small), 0) + 1
        fitting = [item for item in self.candidates(stream, pool, small) if item[1].size >= size]
        if not fitting:
            return None
        at = 0
        if self.settings.expandable_segments:
            reaches = [self.reach(*item) for item in fitting]
            while at + 1 < len(fitting) and reaches[at + 1] < reaches[at]:
                at += 1
        block = fitting[at][1]
        if size < self.limit:
            return None if block.size >= self.limit else fitting[at]
        return None if block.size >= size + self.settings.max_non_split_rounding else fitting[at]

    def reach(self, segment: Segment, block: Block) -> int:
        after = segment.blocks[segment.blocks.index(block) + 1 :][:1]
        return block.size + sum(b.size for b in after if b.state == UNMAPPED)

    def grow(self, size: int, segment_size: int, stream: int, pool: int, small: bool) -> tuple[Segment, Block] | None:
        fraction = self.settings.memory_fraction
        if fraction is not None and self.reserved + segment_size > int(fraction * self.total):
            return None
        if self.settings.expandable_segments:
            return self.expand(size, stream, pool, small)
        taken = -(-segment_size // (2 * MIB)) * 2 * MIB
        if self.device + taken > self.capacity:
            return None
        block = Block(self.next_address, segment_size, FREE)
        self.next_address += taken
        self.segments.append(Segment(pool, stream, small, [block]))
        return self.segments[-1], block

    def expand(self, size: int, stream: int, pool: int, small: bool) -> tuple[Segment, Block] | None:
        segment, first = self.room(size, stream, pool, small)
        page = self.page(segment)
        while True:
            at = segment.blocks.index(first)
            have = first.size if first.state == FREE else 0
            if have >= size:
                return segment, first
            gap = first if first.state == UNMAPPED else segment.blocks[at + 1]
            nbytes = min(-(-min(size - have, gap.size) // page) * page, gap.size)
            if self.device + nbytes // page * -(-page // (2 * MIB)) * 2 * MIB > self.capacity:
                return None
            if nbytes < gap.size:
                segment.split(gap, nbytes)
            gap.state, gap.since = FREE, self.searches[pool, small]
            start = min(first.address, gap.address)
            segment.merge()
            first = next(b for b in segment.blocks if b.address <= start < b.address + b.size)

    def room(self, size: int, stream: int, pool: int, small: bool) -> tuple[Segment, Block]:
        """Where free and unmapped blocks side by side hold the request, at the lowest address."""
        key = (stream, pool, small)
        for segment in sorted((s for s in self.segments if (s.stream, s.pool, s.small) == key), key=lambda s: s.base):
            for at, block in enumerate(segment.blocks):
                if block.state != UNMAPPED:
                    continue
                start = at - 1 if at and segment.blocks[at - 1].state == FREE else at
                together = 0
                for other in segment.blocks[start:]:
                    if other.state not in (FREE, UNMAPPED):
                        break
                    together += other.size
                if together >= size:
                    return segment, segment.blocks[start]
        unit = 2 * MIB if small else self.settings.large_segment
        nbytes = -(-(self.total + self.total // 8) // unit) * unit
        segment = Segment(pool, stream, small, [Block(self.next_address, nbytes, UNMAPPED)], expandable=True)
        self.next_address += -(-nbytes // (2 * MIB)) * 2 * MIB
        self.segments.append(segment)
        return segment, segment.blocks[0]

    def collect_garbage(self) -> None:
        assert self.settings.memory_fraction is not None
        allowed = int(self.settings.memory_fraction * self.total)
        target = self.reserved - int(self.settings.garbage_collection_threshold * allowed)
        if target <= 0:
            return
        clock = self.searches.get((0, False), 0)
        whole = [
            s for s in self.segments if not s.small and s.pool == 0 and len(s.blocks) == 1 and s.blocks[0].state == FREE
        ]
        freed = 0
        while whole and freed < target:
            ages = {id(s): clock - s.blocks[0].since for s in whole}
            average = sum(ages.values()) / len(whole)
            old = [s for s in whole if not s.expandable and ages[id(s)] >= average]
            if not old:
                return
            for segment in old:
                freed += segment.blocks[0].size
                self.segments.remove(segment)
                whole.remove(segment)

    def free_oversize(self, size: int, stream: int, pool: int, small: bool) -> bool:
        if self.settings.max_split is None:
            return False
        wanted = max(size, self.limit)
        blocks = self.candidates(stream, pool, small)
        enough = [item for item in blocks if item[1].size >= wanted]
        if enough and not enough[0][0].expandable:
            self.segments.remove(enough[0][0])
            return True
        freed = 0
        below = [item for item in blocks if item[1].size < wanted]
        for segment, block in reversed(below):
            if freed >= wanted or block.size < self.limit:
                break
            if not segment.expandable:
                freed += block.size
                self.segments.remove(segment)
        return freed >= wanted

    def empty_cache(self) -> None:
        self.pass_events(everything=True)
        for segment in list(self.segments):
            if segment.pool and segment.pool not in self.released:
                continue
            if segment.expandable:
                self.unmap(segment)
            elif len(segment.blocks) == 1 and segment.blocks[0].state == FREE:
                self.segments.remove(segment)

    def unmap(self, segment: Segment) -> None:
        page, base = self.page(segment), segment.base
        any_unmapped = False
        for block in [b for b in segment.blocks if b.state == FREE]:
            begin = -(-(block.address - base) // page) * page
            end = (block.address + block.size - base) // page * page
            if begin >= end:
                continue
            any_unmapped = True
            if begin > block.address - base:
                block = segment.split(block, begin - (block.address - base))
            if block.size > end - begin:
                segment.split(block, end - begin)
            block.state = UNMAPPED
        segment.merge()
        if any_unmapped and len(segment.blocks) == 1 and segment.blocks[0].state == UNMAPPED:
            self.segments.remove(segment)

    def free(self, number: int) -> None:
        item = self.live.pop(number)
        if item is None:
            return
        segment, block = item
        if block.streams:
            block.state = WAITING
            block.waits_for = sorted(block.streams)
            self.recorded += [(stream, block) for stream in block.waits_for]
            block.streams = set()
        else:
            self.recycle(segment, block)

    def record_stream(self, number: int, stream: int) -> None:
        item = self.live[number]
        if item is not None and item[0].stream != stream:
            item[1].streams.add(stream)

    def synchronize(self, stream: int) -> None:
        """What is recorded on the stream so far is seen as passed by the next request."""
        self.done += [entry for entry in self.recorded if entry[0] == stream and entry not in self.done]

    def pass_events(self, everything: bool) -> None:
        done = list(self.recorded) if everything else self.done
        for entry in done:
            self.recorded.remove(entry)
            stream, block = entry
            block.waits_for.remove(stream)
            if not block.waits_for:
                segment = next(s for s, b in self.everything() if b is block)
                self.recycle(segment, block)
        self.done = []

    def recycle(self, segment: Segment, block: Block) -> None:
        block.state, block.requested = FREE, 0
        block.since = self.searches.get((segment.pool, segment.small), 0)
        segment.merge()

    def release_pool(self, pool: int) -> None:
        self.released.add(pool)

    def address(self, number: int) -> int:
        item = self.live[number]
        return -1 if item is None else item[1].address
