# SPDX-License-Identifier: Apache-2.0
"""A job's events given to a simulated allocator: as if memory sufficed, and in the memory that there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memc.ir.errors import InvalidError
from memc.ir.sizes import format_size

from .alloc_conf import parse_alloc_conf
from .allocators import Allocator, Bfc, Caching
from .events import Events
from .gpus import Gpu
from .recording import Recording
from .simulation import Simulation, simulate

MORE_THAN_ANY = 2**42
"""Bytes of memory that suffice for any job."""


@dataclass(frozen=True)
class Job:
    """What is estimated, and for which device."""

    name: str
    """In messages."""
    recording: Recording
    gpu: Gpu
    gpu_named: bool
    """Whether the user named it."""
    memory: int | None
    """Bytes of the device that the job may take; None for no limit."""

    @property
    def events(self) -> Events:
        """What the job asks for."""
        return self.recording.events

    @property
    def outside(self) -> int:
        """Bytes of the device outside the allocator."""
        if self.recording.outside is not None:
            return self.recording.outside
        return self.gpu.outside_inference if self.recording.inference else self.gpu.outside

    @property
    def capacity(self) -> int | None:
        """Bytes left for the allocator."""
        return None if self.memory is None else max(0, self.memory - self.outside)

    def readings(self) -> list[Job]:
        """One job for each reading of a model; the job alone where events are known."""
        others = self.recording.others
        return [self, *(replace(self, recording=replace(self.recording, events=each)) for each in others)]

    def simulate(
        self,
        allocator: Allocator,
        *,
        limited: bool = False,
        descending: bool = True,
        segment_addresses: Sequence[int] = (),
        series: bool = False,
    ) -> Simulation:
        """What the allocator takes. Segments lie one below the other, as the driver mostly has them.

        Raises InvalidError for events that cannot be.
        """
        total = self.gpu.total if self.gpu_named or self.memory is None else self.memory
        if isinstance(allocator, Bfc) and self.memory is not None:
            total = min(total, self.memory)

        def run(total: int) -> Simulation:
            return simulate(
                self.events,
                allocator,
                device_total=total,
                capacity=self.capacity if limited else None,
                descending=descending,
                segment_addresses=segment_addresses,
                series=series,
                addresses=series,
            )

        try:
            found = run(total)
            if (
                found.failed < 0
                or limited
                or not isinstance(allocator, Caching)
                or allocator.memory_fraction is not None
            ):
                return found
            return run(MORE_THAN_ANY)  # Expandable segments have an eighth more addresses than the device has bytes.
        except (ValueError, OverflowError) as error:
            raise InvalidError(f"{self.name}: {error}") from None


@dataclass(frozen=True)
class Taken:
    """What the allocator takes for the job."""

    job: Job
    allocator: Allocator
    free: Simulation
    """Where memory suffices."""
    limited: Simulation | None
    """In the memory given."""
    assumed: tuple[str, ...]

    @property
    def confidence(self) -> str:
        """How much is known."""
        if self.job.recording.modelled:
            return "modelled"
        return "assumed" if self.assumed else "exact"

    @property
    def fitted(self) -> int | None:
        """Bytes of the device in the memory given; None where it does not fit, or none is given."""
        if self.limited is None or self.limited.failed >= 0:
            return None
        found = self.limited.device.peak + self.job.outside
        return found if self.job.memory is None else min(found, self.job.memory)

    def breakdown(self) -> Mapping[str, int]:
        """Bytes that add up to what the device gives: at the peak of what is allocated, what was asked for, by category where that is
        known, and what rounding and unsplit rests add; what is reserved at most beyond it; and what is outside the allocator."""
        at = self.free.peak_allocated_at
        requested = int(self.job.events.live_after()[at]) if at >= 0 else 0
        parts = dict(_categories(self.job.events, at)) or {"requested": requested}
        parts["rounding"] = self.free.allocated.peak - requested
        parts["fragmentation"] = self.free.device.peak - self.free.allocated.peak
        parts |= {"nccl": self.job.recording.nccl} if self.job.recording.nccl else {}
        parts["outside"] = self.job.outside - self.job.recording.nccl
        return parts


def _categories(events: Events, at: int) -> Mapping[str, int]:
    """Bytes that are live after event `at`, by the category of who asked for them; empty where no category is known."""
    names = sorted({origin.category for origin in events.origins if origin.category})
    if not names or at < 0:
        return {}
    blocks = events.blocks[: at + 1]
    live = np.zeros(len(events.sizes()), np.int64)
    made = events.makes[: at + 1]
    live[blocks[made]] = events.nbytes[: at + 1][made]
    live[blocks[events.frees[: at + 1]]] = 0
    number = {name: index for index, name in enumerate(names)}
    of_origin = np.array([number.get(origin.category, -1) for origin in events.origins] + [-1], np.int64)
    total = np.bincount(of_origin[events.origin_of[: at + 1][made]] + 1, live[blocks[made]], len(names) + 1)
    parts = {name: int(total[index + 1]) for index, name in enumerate(names)}
    return parts | ({"other": int(total[0])} if total[0] else {})


def replay(job: Job, asked: Allocator | None, changed: bool) -> Taken:
    """The job under the settings asked for, or those of its recording.

    `changed`: whether they were asked for.
    """
    recording = job.recording
    own = recording.allocator or parse_alloc_conf(recording.alloc_conf, f"{job.name}: alloc")
    allocator = own if asked is None else asked
    same = allocator == own
    addresses = recording.segment_addresses(job.gpu.total) if same and not recording.partial else []
    free = job.simulate(allocator, segment_addresses=addresses, series=True)
    limited = job.simulate(allocator, limited=True, segment_addresses=addresses) if job.capacity is not None else None
    if isinstance(allocator, Caching) and allocator.memory_fraction is not None and free.failed >= 0:
        limited = free if limited is None else limited  # What fails for the fraction fails in any memory.
        free = job.simulate(replace(allocator, memory_fraction=None), segment_addresses=addresses, series=True)
    notes = list(recording.modelled)
    if recording.modelled and job.gpu.name not in ("h200", "h100"):
        notes.append("workspaces of convolutions as on an H200")
    if recording.partial:
        notes.append(recording.partial)
    notes += recording.assumed
    if changed and not same:
        notes.append("the job asks for the same blocks as under the settings of its recording")
    if same and addresses and not _as_recorded(job, free):
        notes.append("the recording's addresses differ: more than its events and settings had a part in them")
    if not (addresses and recording.places_known) and isinstance(allocator, Caching):
        found = [(job, free), (job, job.simulate(allocator, descending=False, series=True))]
        for each in job.readings()[1:]:
            found += [(each, each.simulate(allocator, descending=order, series=True)) for order in (True, False)]
        notes += _spread([taken for _, taken in found], bool(recording.others))
        if recording.modelled:
            job, free, limited = _largest(found, allocator, limited)
    if not job.gpu_named and job.memory is not None:
        notes.append(f"outside the allocator as on {job.gpu.name}: {format_size(job.outside)}")
    elif job.gpu_named and job.gpu.from_data_sheet:
        notes.append(f"{job.gpu.name}: {job.gpu.measured}")
    return Taken(job, allocator, free, limited, tuple(notes))


def _largest(
    found: Sequence[tuple[Job, Simulation]], allocator: Allocator, limited: Simulation | None
) -> tuple[Job, Simulation, Simulation | None]:
    """The reading of a model that reserves the most, of those that do not fit if there are any."""
    if limited is not None:
        tried = {id(job): job.simulate(allocator, limited=True) for job, _ in found}
        failing = [each for each in found if tried[id(each[0])].failed >= 0]
        job, free = max(failing or found, key=lambda each: each[1].reserved.peak)
        return job, free, tried[id(job)]
    return *max(found, key=lambda each: each[1].reserved.peak), None


def _as_recorded(job: Job, free: Simulation) -> bool:
    """Whether each request got its address, and the peaks are those that were counted."""
    same = free.failed < 0 and free.addresses[job.events.makes].tolist() == list(job.recording.addresses)
    return same and all(getattr(free, name).peak == nbytes for name, nbytes in job.recording.peaks.items())


def _spread(found: Sequence[Simulation], read: bool) -> list[str]:
    """Whether what is not known makes a difference: the order of segments' addresses, and how long tensors have names."""
    sizes = [each.reserved.peak for each in found]
    if min(sizes) == max(sizes):
        return []
    what = "segments' addresses and how long tensors have names are" if read else "segments' addresses are"
    return [f"{what} not known: {min(sizes):,} to {max(sizes):,} bytes reserved by {'them' if read else 'their order'}"]
