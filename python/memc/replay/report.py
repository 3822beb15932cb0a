# SPDX-License-Identifier: Apache-2.0
"""What came of a region with planned memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memc.ir.sizes import format_size


@dataclass(frozen=True)
class Fallbacks:
    """Requests of one kind that the framework's own allocator served, or whose place was searched for."""

    count: int
    first: str
    """Where the first of them was: the step, the request, and what was expected."""


@dataclass(frozen=True)
class ReplayReport:
    """Of all steps of a region so far. Sizes in bytes; None where something is not known."""

    state: str
    """`pass`, `watch`, `plan` or `replay`."""
    steps: int
    watched_steps: int
    replayed_steps: int
    requests: int
    """In replayed steps; those that the plan leaves to the framework's allocator included."""
    hits: int
    """Requests that got the bytes which the plan has for them."""
    native: int = 0
    """Requests that the plan leaves to the framework's allocator."""
    from_gaps: int = 0
    """Requests of steps without a plan of their own, served from bytes of the arena that no block used."""
    fallbacks: Mapping[str, Fallbacks] = field(default_factory=dict)
    """By cause, in the order in which the causes first appeared."""
    plans: int = 0
    replans: int = 0
    arena_bytes: int = 0
    """Of the largest plan: all share one arena."""
    lower_bound: int = 0
    """Of that plan."""
    planning_seconds: float = 0.0
    reserved_before: int | None = None
    """By the framework's allocator, at the most, before the first replayed step."""
    reserved_after: int | None = None
    """The same since then, with the arena."""
    note: str = ""
    """Why the region is not replayed, if it is not."""

    @property
    def gap_percent(self) -> float:
        """How far the arena is above the lower bound."""
        return 100 * (self.arena_bytes - self.lower_bound) / self.lower_bound if self.lower_bound else 0.0

    @property
    def fallback_count(self) -> int:
        """Of all causes."""
        return sum(each.count for each in self.fallbacks.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        data = dict(vars(self))
        data["fallbacks"] = {cause: vars(each) for cause, each in self.fallbacks.items()}
        data["gap_percent"] = round(self.gap_percent, 4)
        data["planning_seconds"] = round(self.planning_seconds, 4)
        return data

    def __str__(self) -> str:
        lines = [
            f"{self.state}: {self.steps:,} steps, {self.watched_steps:,} watched, {self.replayed_steps:,} replayed; "
            f"{self.plans} plans, {self.replans} replans, {self.planning_seconds:.3f} s of planning",
            f"requests  {self.requests:,}: {self.hits:,} hits, {self.native:,} native by plan, {self.fallback_count:,} fall-backs",
        ]
        lines += [f"  {each.count:,} {cause}; first: {each.first}" for cause, each in self.fallbacks.items()]
        lines.append(
            f"arena     {self.arena_bytes:,} B ({format_size(self.arena_bytes)}), {self.gap_percent:.2f} % above the lower "
            f"bound of {self.lower_bound:,} B"
        )
        if self.reserved_before is not None and self.reserved_after is not None:
            change = 100 * (self.reserved_after / self.reserved_before - 1) if self.reserved_before else 0.0
            lines.append(
                f"reserved  {self.reserved_before:,} B before, {self.reserved_after:,} B with the arena: {change:+.1f} %"
            )
        return "\n".join(lines + ([self.note] if self.note else []))
