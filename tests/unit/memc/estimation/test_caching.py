# SPDX-License-Identifier: Apache-2.0
"""PyTorch's caching allocator, rule by rule, worked by hand."""

from __future__ import annotations

import pytest

from memc.estimation.allocators import Caching
from memc.estimation.events import EventList
from memc.estimation.simulation import Simulation, simulate

KIB, MIB = 2**10, 2**20


def run(events: EventList, allocator: Caching | None = None, capacity: int | None = None) -> Simulation:
    return simulate(
        events.events(),
        allocator or Caching(),
        device_total=1000 * MIB,
        capacity=capacity,
        series=True,
        addresses=True,
        segments=True,
    )


def one(nbytes: int, allocator: Caching | None = None) -> tuple[int, int]:
    """Allocated and reserved bytes of a single request."""
    events = EventList()
    events.allocate(nbytes)
    found = run(events, allocator)
    return found.allocated.current, found.reserved.current


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        (0, 0, 0),
        (1, 512, 2 * MIB),
        (511, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (5 * MIB, 5 * MIB, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (19 * MIB, 20 * MIB, 20 * MIB),
        (21 * MIB, 22 * MIB, 22 * MIB),
    ],
)
def test_rounding_and_segments(asked: int, allocated: int, reserved: int) -> None:
    """A rest of 1 MiB or less stays with a large block and is charged to it."""
    assert one(asked) == (allocated, reserved)


@pytest.mark.parametrize(
    ("asked", "rounded"),
    [(1200, 1536), (2048, 2048), (2049, 2560), (1280 * KIB, 1280 * KIB), (1281 * KIB, 1536 * KIB), (4 * MIB, 4 * MIB)],
)
def test_roundup_power2_divisions(asked: int, rounded: int) -> None:
    """Four steps between powers of two, from 512 x 4 bytes on."""
    assert one(asked, Caching(divisions=(4,) * 16))[0] == rounded


def test_divisions_of_an_interval() -> None:
    divisions = (0, 2) + (0,) * 14
    assert one(1281 * KIB, Caching(divisions=divisions))[0] == 1281 * KIB
    assert one(2049 * KIB, Caching(divisions=divisions))[0] == 3 * MIB


@pytest.mark.parametrize(("asked", "reserved"), [(MIB, 2 * MIB), (2 * MIB, 60 * MIB), (10 * MIB, 10 * MIB)])
def test_large_segments(asked: int, reserved: int) -> None:
    assert one(asked, Caching(large_segment=60 * MIB))[1] == reserved


def test_best_fit_and_coalescing() -> None:
    events = EventList()
    a, b, c, d = (events.allocate(nbytes) for nbytes in (3 * MIB, 2 * MIB, 5 * MIB, 2 * MIB))
    events.free(a)
    events.free(c)
    least = events.allocate(2 * MIB)  # Into the hole of 3 MiB, not that of 5.
    events.free(b)
    events.free(least)
    merged = events.allocate(9 * MIB)  # The first three blocks are one hole of 10 MiB again.
    events.free(d)
    found = run(events)
    at = found.addresses.tolist()
    assert at[least + 2] == at[a] and at[merged + 4] == at[a]
    assert found.reserved.peak == 20 * MIB and found.segments.peak == 1


def test_small_and_large_blocks_are_apart() -> None:
    events = EventList()
    events.free(events.allocate(5 * MIB))
    events.allocate(MIB)
    assert run(events).reserved.current == 22 * MIB


def test_inactive_split_bytes() -> None:
    events = EventList()
    a, b = events.allocate(3 * MIB), events.allocate(2 * MIB)
    events.free(a)
    found = run(events)
    assert found.inactive_split.current == 18 * MIB
    events.free(b)
    assert run(events).inactive_split.current == 0


def test_a_cached_segment_goes_back_before_memory_runs_out() -> None:
    events = EventList()
    events.free(events.allocate(30 * MIB))
    events.allocate(40 * MIB)
    found = run(events, capacity=50 * MIB)
    assert (found.failed, found.retries, found.reserved.current) == (-1, 1, 40 * MIB)
    assert [(change.kind, change.nbytes) for change in found.changes] == [
        ("segment_alloc", 30 * MIB),
        ("segment_free", 30 * MIB),
        ("segment_alloc", 40 * MIB),
    ]


def test_out_of_memory_names_the_request() -> None:
    events = EventList()
    events.allocate(30 * MIB)
    events.allocate(1)
    events.allocate(30 * MIB)
    events.allocate(1)
    found = run(events, capacity=50 * MIB)
    assert (found.failed, found.retries, found.reserved.current) == (2, 1, 32 * MIB)


def test_memory_fraction_limits_what_is_reserved() -> None:
    events = EventList()
    events.allocate(300 * MIB)
    events.allocate(200 * MIB)
    assert run(events, Caching(memory_fraction=0.5)).failed == -1
    events.allocate(1)
    assert run(events, Caching(memory_fraction=0.5)).failed == 2


def test_max_split_size() -> None:
    """Requests below the limit take no oversize block; others take one only if it is not much larger."""
    events = EventList()
    events.free(events.allocate(100 * MIB))
    events.allocate(30 * MIB)  # Not the block of 100 MiB.
    events.allocate(79 * MIB)  # Nor this: 100 is 20 MiB or more above.
    events.allocate(81 * MIB)  # This takes it whole.
    found = run(events, Caching(max_split=64 * MIB))
    assert found.reserved.current == (100 + 30 + 80) * MIB
    assert found.allocated_after.tolist()[-1] == (100 + 30 + 80) * MIB


def test_oversize_blocks_go_back_one_by_one() -> None:
    events = EventList()
    blocks = [events.allocate(nbytes * MIB) for nbytes in (70, 90, 30)]
    for block in blocks:
        events.free(block)
    events.allocate(120 * MIB)
    found = run(events, Caching(max_split=64 * MIB), capacity=200 * MIB)
    freed = [change.nbytes for change in found.changes if change.kind == "segment_free"]
    assert (freed, found.retries) == ([90 * MIB, 70 * MIB], 0)
    assert found.reserved.current == 150 * MIB


def test_garbage_collection_frees_the_oldest() -> None:
    """Above half of the allowed 500 MiB, segments that were not taken for longer than the average go back."""
    events = EventList()
    old = events.allocate(150 * MIB)
    events.free(old)
    for _ in range(9):
        events.free(events.allocate(130 * MIB))
    events.allocate(200 * MIB)
    settings = Caching(garbage_collection_threshold=0.5, memory_fraction=0.5)
    found = run(events, settings)
    freed = [change.nbytes for change in found.changes if change.kind == "segment_free"]
    assert freed == [] and found.reserved.current == 350 * MIB  # 150 MiB are below the threshold of 250.
    events.allocate(100 * MIB)
    settings = Caching(garbage_collection_threshold=0.25, memory_fraction=0.5)
    found = run(events, settings)
    freed = [change.nbytes for change in found.changes if change.kind == "segment_free"]
    assert freed == [150 * MIB]


def test_other_streams_have_their_own_blocks() -> None:
    events = EventList()
    events.free(events.allocate(5 * MIB, stream=0))
    events.allocate(5 * MIB, stream=7)
    assert run(events).reserved.current == 40 * MIB


@pytest.mark.parametrize(("complete", "reserved"), [(True, 16), (False, 32)])
def test_a_block_used_on_another_stream_waits(complete: bool, reserved: int) -> None:
    events = EventList()
    block = events.allocate(15 * MIB)
    events.record_stream(block, 7)
    events.free(block)
    events.allocate(15 * MIB)
    found = run(events, Caching(events_complete=complete))
    assert found.reserved.current == reserved * MIB
    assert found.active.peak == reserved * MIB


def test_a_stream_that_has_passed_frees_blocks_at_the_next_request() -> None:
    events = EventList()
    block = events.allocate(15 * MIB)
    events.record_stream(block, 7)
    events.free(block)
    events.synchronize(3)
    events.synchronize(7)
    events.allocate(15 * MIB)
    assert run(events, Caching(events_complete=False)).reserved.current == 16 * MIB


def test_private_pools_keep_their_memory() -> None:
    events = EventList()
    events.free(events.allocate(15 * MIB, pool=1))
    events.empty_cache()
    events.allocate(15 * MIB)
    assert run(events).reserved.current == 32 * MIB
    events.release_pool(1)
    events.empty_cache()
    assert run(events).reserved.current == 16 * MIB


def test_expandable_segments_map_pages_side_by_side() -> None:
    events = EventList()
    small, large = events.allocate(1), events.allocate(15 * MIB)
    more = events.allocate(30 * MIB)
    found = run(events, Caching(expandable_segments=True))
    assert [(c.kind, c.nbytes // MIB) for c in found.changes] == [
        ("segment_map", 2),
        ("segment_map", 20),
        ("segment_map", 40),
    ]
    at = found.addresses.tolist()
    assert at[more] == at[large] + 15 * MIB and at[small] < at[large]
    assert found.allocated.current == 45 * MIB + 512
    assert found.reserved.current == 62 * MIB and found.inactive_split.peak == 0


def test_expandable_segments_unmap_whole_pages() -> None:
    events = EventList()
    first, second = events.allocate(30 * MIB), events.allocate(5 * MIB)
    events.free(first)
    events.empty_cache()
    found = run(events, Caching(expandable_segments=True))
    assert found.reserved.current == 20 * MIB  # The page that holds the end of the first block and the second.
    events.free(second)
    events.empty_cache()
    assert run(events, Caching(expandable_segments=True)).reserved.current == 0


def test_a_request_beyond_the_device() -> None:
    """Its segment would not have the addresses."""
    events = EventList()
    events.allocate(2000 * MIB)
    assert run(events, Caching(expandable_segments=True)).failed == 0


def test_given_back_and_free_are_apart_in_recordings() -> None:
    events = EventList()
    block = events.allocate(5 * MIB)
    events.request_free(block)
    found = run(events)
    assert (found.allocated.current, found.active.current, found.requested.current) == (0, 5 * MIB, 5 * MIB)
    events.complete_free(block)
    found = run(events)
    assert (found.active.current, found.requested.current) == (0, 0)


def test_peaks_name_their_events() -> None:
    events = EventList()
    a = events.allocate(5 * MIB)
    b = events.allocate(7 * MIB)
    events.free(b)
    events.free(a)
    events.allocate(11 * MIB)
    found = run(events)
    assert (found.peak_allocated_at, found.peak_reserved_at) == (1, 0)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda events: events.free(3), "event 1: block 3 is not live"),
        (lambda events: (events.free(0), events.free(0)), "event 2: block 0 is not live"),
        (lambda events: events.complete_free(0), "event 1: block 0 was not given back"),
        (lambda events: (events.request_free(0), events.free(0)), "event 2: block 0 was given back before"),
        (lambda events: events.allocate(2**61), "event 1: a request of 2305843009213693952 bytes is not within"),
        (lambda events: events.release_pool(0), "event 1: a private pool has a number of 1 or more"),
    ],
)
def test_events_that_cannot_be(mistake: object, message: str) -> None:
    events = EventList()
    events.allocate(5)
    mistake(events)  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        run(events)
