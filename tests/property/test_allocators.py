# SPDX-License-Identifier: Apache-2.0
"""The native caching allocator against a slow model of the same rules: every address and every byte count, over random events and
settings."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memc.estimation.allocators import Caching
from memc.estimation.events import EventList, Events, Kind
from memc.estimation.simulation import simulate

from .caching_model import MIB, CachingModel

EDGES = [
    0,
    1,
    511,
    512,
    513,
    MIB - 1,
    MIB,
    MIB + 1,
    2 * MIB,
    10 * MIB - 1,
    10 * MIB,
    10 * MIB + 1,
    19 * MIB,
    20 * MIB,
    21 * MIB,
]

CAPACITY = st.sampled_from([60 * MIB, 200 * MIB, 1000 * MIB])


@st.composite
def allocators(draw: st.DrawFn) -> Caching:
    large = draw(st.sampled_from([20, 20, 20, 11, 15, 40])) * MIB
    return Caching(
        expandable_segments=draw(st.booleans()),
        large_segment=large,
        max_split=draw(st.sampled_from([None, None, large, large + 5 * MIB])),
        max_non_split_rounding=large + draw(st.sampled_from([0, 10])) * MIB,
        divisions=tuple(draw(st.sampled_from([(0,) * 16, (4,) * 16, (1, 2, 4, 8) + (0,) * 12]))),
        garbage_collection_threshold=draw(st.sampled_from([0.0, 0.5])),
        memory_fraction=draw(st.sampled_from([None, 0.3, 0.8])),
        events_complete=draw(st.booleans()),
    )


def random_events(seed: int, count: int, streams: int, pools: int) -> Events:
    """Requests, frees, uses on other streams, and now and then all else there is."""
    rng = random.Random(seed)
    events = EventList()
    live: list[int] = []
    for _ in range(count):
        dice = rng.random()
        if live and dice < 0.42:
            events.free(live.pop(rng.randrange(len(live))))
        elif live and dice < 0.50 and streams > 1:
            events.record_stream(rng.choice(live), rng.randrange(streams))
        elif dice < 0.53 and streams > 1:
            events.synchronize(rng.randrange(streams))
        elif dice < 0.54:
            events.empty_cache()
        elif dice < 0.545 and pools:
            events.release_pool(rng.randint(1, pools))
        else:
            nbytes = rng.choice(EDGES) if rng.random() < 0.4 else int(2 ** rng.uniform(0, 25))
            pool = rng.randint(1, pools) if pools and rng.random() < 0.3 else 0
            live.append(events.allocate(nbytes, rng.randrange(streams), pool))
    return events.events()


def run_model(model: CachingModel, events: Events) -> tuple[int, list[tuple[int, int, int]]]:
    """The event that fails, -1 for none; allocated and reserved bytes and the address after each event."""
    rows = []
    columns = (events.kinds, events.blocks, events.nbytes, events.streams, events.pools)
    for at, (kind, block, nbytes, stream, pool) in enumerate(zip(*(column.tolist() for column in columns))):
        address, ok = -1, True
        if kind == Kind.ALLOCATE:
            ok = model.allocate(block, nbytes, stream, pool)
            address = model.address(block) if ok else -1
        elif kind == Kind.FREE:
            model.free(block)
        elif kind == Kind.RECORD_STREAM:
            model.record_stream(block, stream)
        elif kind == Kind.SYNCHRONIZE:
            model.synchronize(stream)
        elif kind == Kind.EMPTY_CACHE:
            model.empty_cache()
        else:
            model.release_pool(pool)
        rows.append((model.allocated, model.reserved, address))
        if not ok:
            return at, rows
    return -1, rows


@given(allocators(), st.integers(0, 2**32), st.integers(1, 120), st.integers(1, 3), st.integers(0, 2), CAPACITY)
def test_caching_allocator_does_what_the_model_does(
    allocator: Caching, seed: int, count: int, streams: int, pools: int, capacity: int
) -> None:
    events = random_events(seed, count, streams, pools)
    model = CachingModel(allocator, 1000 * MIB, capacity)
    failed, rows = run_model(model, events)
    found = simulate(events, allocator, device_total=1000 * MIB, capacity=capacity, series=True, addresses=True)
    assert found.failed == failed
    n = len(rows)
    series = np.stack([found.allocated_after[:n], found.reserved_after[:n], found.addresses[:n]], axis=1)
    assert series.tolist() == [list(row) for row in rows]
    assert found.allocated.peak == max(row[0] for row in rows)
    assert (found.requested.current, found.device.current) == (model.requested, model.device)
    assert found.retries == model.retries
