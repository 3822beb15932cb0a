# SPDX-License-Identifier: Apache-2.0
"""What an estimate says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .step_plans import StepPlan


@dataclass(frozen=True)
class OutOfMemory:
    """The request for which the memory does not suffice, once all that was cached is given back. Bytes."""

    event: int
    op: str
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class Alternative:
    """What the job would take under other settings. Bytes, at the peak."""

    settings: str
    reserved_bytes: int
    retries: int = 0
    fits: bool | None = None
    """Whether the job fits with them into the memory given; None where none is."""


@dataclass(frozen=True, repr=False)
class Estimate:
    """What a job takes where memory suffices, all at the peak and in bytes."""

    source: str
    allocated_bytes: int
    reserved_bytes: int
    requested_bytes: int
    device_bytes: int
    confidence: str
    """`exact`: what the allocator does for what the job asks; `assumed`: for what it is taken to ask; `modelled`: by a model of the
    framework."""
    assumed: tuple[str, ...]
    peak_op: str | None
    breakdown: Mapping[str, int]
    fits: bool | None
    """Whether the job runs in the memory given; None where none is."""
    largest_batch: int | None
    seconds: float
    allocator: str
    gpu: str | None
    memory_bytes: int | None
    retries: int
    """In the memory given: how often all that is cached goes back to the device."""
    fitted_bytes: int | None
    """What the job takes of the device in the memory given, where it fits; None elsewhere."""
    range_end: bool
    """Whether `largest_batch` is the last that was tried: more may fit."""
    out_of_memory: OutOfMemory | None
    alternatives: tuple[Alternative, ...]
    recorded: Mapping[str, int] = field(default_factory=dict)
    """What PyTorch counted itself, where the source says so."""
    plan: StepPlan | None = None
    """Of the hot step, where one was asked for."""

    def __repr__(self) -> str:
        fits = {None: "", True: ", fits", False: ", does not fit"}[self.fits]
        return f"<Estimate of {self.source}: reserved {self.reserved_bytes:,} B, device {self.device_bytes:,} B ({self.confidence}){fits}>"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        data = dict(vars(self))
        data["assumed"] = list(self.assumed)
        data["breakdown"] = dict(self.breakdown)
        data["recorded"] = dict(self.recorded)
        data["out_of_memory"] = None if self.out_of_memory is None else vars(self.out_of_memory)
        data["alternatives"] = [vars(each) for each in self.alternatives]
        data["plan"] = None if self.plan is None else self.plan.to_dict()
        data["seconds"] = round(self.seconds, 4)
        return data
