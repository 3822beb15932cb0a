# SPDX-License-Identifier: Apache-2.0
"""The door to the simulated allocators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memc import native
from memc.solvers.arrays import tensor

from .allocators import UNLIMITED, Allocator
from .events import Events, Int64s


@dataclass(frozen=True)
class Counter:
    """Of something, at the end and at most."""

    current: int
    peak: int


@dataclass(frozen=True)
class SegmentChange:
    """Memory that the device gave or took back."""

    event: int
    kind: str
    """`segment_alloc`, `segment_free`, `segment_map` or `segment_unmap`."""
    address: int
    nbytes: int
    stream: int


_CHANGES = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")


@dataclass(frozen=True, eq=False)
class Simulation:
    """What an allocator took for some events. Counters are in bytes, but for `segments`."""

    failed: int
    """The event that ran out of memory, after which none is looked at; -1 for none."""
    peak_allocated_at: int
    peak_reserved_at: int
    """The events with which the peaks are reached first; -1 without events."""
    retries: int
    """How often all that was cached went back to the device so that a request could be served."""
    allocated: Counter
    requested: Counter
    reserved: Counter
    active: Counter
    inactive_split: Counter
    segments: Counter
    device: Counter
    allocated_after: Int64s
    """After each event; empty unless asked for."""
    reserved_after: Int64s
    addresses: Int64s
    """That each request got, -1 for other events; empty unless asked for."""
    changes: tuple[SegmentChange, ...]


def simulate(
    events: Events,
    allocator: Allocator,
    *,
    device_total: int = 80 * 2**30,
    capacity: int | None = None,
    descending: bool = False,
    segment_addresses: Sequence[int] = (),
    series: bool = False,
    addresses: bool = False,
    segments: bool = False,
) -> Simulation:
    """What the allocator takes.

    Args:
        device_total: bytes that the device has; what settings are shares of.
        capacity: bytes that the allocator may get of it; None for as many as it asks for.
        descending: whether each segment lies below the last, instead of above.
        segment_addresses: of the first segments, where they are known.
        series, addresses, segments: what to keep of every event.

    Raises ValueError for events that cannot be, such as a free of what is not live, and for settings out of range.
    """
    n = len(events)
    after = np.zeros(2 * n if series else 0, np.int64)
    found = np.zeros(n if addresses else 0, np.int64)
    columns = (events.kinds, events.blocks, events.nbytes, events.streams, events.pools)
    numbers = native.load()["memc_simulate_allocator"](
        allocator.native,
        UNLIMITED if capacity is None else capacity,
        descending,
        tensor(np.array(allocator.numbers(device_total), np.int64)),
        *allocator.shares(),
        tensor(np.array(segment_addresses, np.int64)),
        *map(tensor, columns),
        tensor(after),
        tensor(found),
        segments,
    )
    failed, allocated_at, reserved_at, retries, *rest = (int(number) for number in numbers)
    counters = [Counter(*rest[2 * i : 2 * i + 2]) for i in range(7)]
    changes = (rest[i : i + 5] for i in range(14, len(rest), 5))
    return Simulation(
        failed=failed,
        peak_allocated_at=allocated_at,
        peak_reserved_at=reserved_at,
        retries=retries,
        allocated=counters[0],
        requested=counters[1],
        reserved=counters[2],
        active=counters[3],
        inactive_split=counters[4],
        segments=counters[5],
        device=counters[6],
        allocated_after=after[: n if series else 0],
        reserved_after=after[n:],
        addresses=found,
        changes=tuple(SegmentChange(at, _CHANGES[kind], *others) for at, kind, *others in changes),
    )
