# SPDX-License-Identifier: Apache-2.0
"""BFC, CuPy's and MXNet's pools, and a planned arena, worked by hand."""

from __future__ import annotations

import pytest

from memc.estimation.allocators import ALLOCATORS, MIB, Allocator, Bfc, Cupy, Mxnet
from memc.estimation.events import EventList
from memc.estimation.planned import planned_arena
from memc.estimation.simulation import Simulation, simulate


def run(events: EventList, allocator: Allocator, capacity: int | None = None) -> Simulation:
    return simulate(
        events.events(), allocator, device_total=1000 * MIB, capacity=capacity, addresses=True, segments=True
    )


def requests(*nbytes: int) -> EventList:
    events = EventList()
    for each in nbytes:
        events.allocate(each)
    return events


@pytest.mark.parametrize(("asked", "allocated"), [(0, 0), (1, 256), (256, 256), (257, 512)])
def test_bfc_rounds_to_256_bytes(asked: int, allocated: int) -> None:
    assert run(requests(asked), Bfc()).allocated.current == allocated


def test_bfc_regions_double() -> None:
    """The first has 2 MiB; each one that did not have to grow for its request doubles the next."""
    found = run(requests(MIB, 2 * MIB, 30 * MIB, 30 * MIB), Bfc())
    assert [change.nbytes // MIB for change in found.changes] == [2, 4, 32, 32]


def test_bfc_does_not_pass_its_limit() -> None:
    found = run(requests(60 * MIB, 30 * MIB, 10 * MIB), Bfc(limit=100 * MIB))
    assert [change.nbytes // MIB for change in found.changes] == [64, 36]
    assert found.failed == 2


def test_bfc_takes_less_where_the_device_has_no_more() -> None:
    """Each try is nine tenths of the last, rounded up to 256 bytes."""
    found = run(requests(33 * MIB), Bfc(), capacity=50 * MIB)
    assert found.reserved.current == 48_922_624
    assert run(requests(60 * MIB), Bfc(), capacity=50 * MIB).failed == 0


def test_bfc_splits_a_block_of_twice_the_size() -> None:
    events = EventList()
    whole = events.allocate(2 * MIB)
    events.free(whole)
    events.allocate(MIB + 256)  # Not half of 2 MiB: it keeps the rest.
    assert run(events, Bfc()).allocated.current == 2 * MIB
    events.free(1)
    events.allocate(MIB)
    assert run(events, Bfc()).allocated.current == MIB


def test_bfc_splits_off_128_mib_in_any_case() -> None:
    events = EventList()
    events.free(events.allocate(500 * MIB))
    events.allocate(372 * MIB)
    assert run(events, Bfc(growth=False)).allocated.current == 372 * MIB
    events.free(1)
    events.allocate(900 * MIB)
    assert run(events, Bfc(growth=False)).allocated.current == 1000 * MIB


def test_bfc_gives_free_regions_back_only_if_told() -> None:
    events = EventList()
    events.free(events.allocate(60 * MIB))
    events.allocate(80 * MIB)
    assert run(events, Bfc(limit=100 * MIB)).failed == 2
    found = run(events, Bfc(limit=100 * MIB, garbage_collection=True))
    assert (found.failed, found.retries, found.reserved.current) == (-1, 1, 100 * MIB)


def test_xla_takes_three_quarters_at_once() -> None:
    assert run(requests(1), ALLOCATORS["xla"]).reserved.current == 750 * MIB


def test_cupy_takes_what_is_asked_for() -> None:
    events = EventList()
    block = events.allocate(1000)
    events.free(block)
    events.allocate(100)
    found = run(events, Cupy())
    assert (found.allocated.current, found.reserved.current) == (512, 1024)


def test_cupy_gives_back_what_is_free_before_memory_runs_out() -> None:
    events = EventList()
    events.free(events.allocate(30 * MIB))
    events.allocate(40 * MIB)
    found = run(events, Cupy(limit=50 * MIB))
    assert (found.failed, found.retries, found.reserved.current) == (-1, 1, 40 * MIB)
    assert run(events, Cupy(limit=39 * MIB)).failed == 2


def test_cupy_streams_have_their_own_arenas() -> None:
    events = EventList()
    events.free(events.allocate(1000, stream=1))
    events.allocate(1000, stream=2)
    assert run(events, Cupy()).reserved.current == 2048


@pytest.mark.parametrize(
    ("kind", "asked", "taken"),
    [
        (0, 1, 4096),
        (0, 4097, 8192),
        (0, 2 * MIB, 2 * MIB),
        (0, 2 * MIB + 1, 4 * MIB),
        (1, 1, 4096),
        (1, 5000, 8192),
        (1, 16 * MIB, 16 * MIB),
        (1, 16 * MIB + 1, 32 * MIB),
        (1, 33 * MIB, 48 * MIB),
        (2, 5001, 5001),
    ],
)
def test_mxnet_rounding(kind: int, asked: int, taken: int) -> None:
    assert run(requests(asked), Mxnet(kind=kind)).allocated.current == taken


def test_mxnet_reuses_only_its_own_size() -> None:
    events = EventList()
    events.free(events.allocate(5000))
    events.allocate(6000)
    events.allocate(4000)
    assert run(events, Mxnet()).reserved.current == 8192 + 4096
    assert run(events, Mxnet(kind=2)).reserved.current == 6000 + 4000


def test_mxnet_keeps_part_of_the_device_free() -> None:
    """With 5 of 100 MiB to stay free, a request for 60 gives 40 back first."""
    events = EventList()
    events.free(events.allocate(40 * MIB))
    events.allocate(56 * MIB)
    assert run(events, Mxnet(), capacity=100 * MIB).reserved.current == 56 * MIB
    assert run(events, Mxnet(reserve_percent=4), capacity=100 * MIB).reserved.current == 96 * MIB


def test_a_planned_arena_needs_what_is_live() -> None:
    events = EventList()
    a, b = events.allocate(1000), events.allocate(5000)
    events.free(a)
    events.free(b)
    events.allocate(5500)
    assert planned_arena(events.events()) == 1024 + 5120


@pytest.mark.parametrize("name", ALLOCATORS)
def test_every_allocator_frees_what_it_gave(name: str) -> None:
    events = EventList()
    blocks = [events.allocate(nbytes) for nbytes in (0, 1, 1000, MIB, 5 * MIB)]
    for block in blocks:
        events.free(block)
    found = run(events, ALLOCATORS[name])
    assert found.allocated.current == found.requested.current == 0
    assert found.requested.peak == 1001 + 6 * MIB
