# SPDX-License-Identifier: Apache-2.0
"""What `memc.plan` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memc.ir.footprint import Footprint, SpaceFootprint

from .tensors import Tensor


@dataclass(frozen=True)
class SpacePlan(SpaceFootprint):
    """One memory space. All figures are in bytes."""

    capacity: int | None = None

    @property
    def peak(self) -> int:
        """What the space takes."""
        return self.bytes


@dataclass(frozen=True, repr=False)
class Plan:
    """Where every tensor lies, and how good that is."""

    seconds: float
    solver: str
    tensors: Sequence[Tensor]
    """For a graph or module: its storages, by name."""
    offsets: Sequence[int]
    """Of each tensor, bytes from the start of its space."""
    spaces: Sequence[SpacePlan]
    order: Sequence[int] | None = None
    """Of a graph: its ops by index, in execution order."""

    def __repr__(self) -> str:
        bound = "optimal" if self.proven_optimal else f"lower bound {self.lower_bound:,} B"
        return f"<Plan of {len(self.tensors)} tensors: peak {self.peak:,} B, {bound}, by {self.solver}>"

    @property
    def footprint(self) -> Footprint:
        """Bytes by space."""
        return Footprint(tuple(self.spaces), None)

    @property
    def peak(self) -> int:
        """Bytes, over all spaces."""
        return self.footprint.peak

    @property
    def lower_bound(self) -> int:
        """Bytes: no plan has a lower peak; with `reorder`, no order either."""
        return self.footprint.lower_bound

    @property
    def proven_optimal(self) -> bool:
        return self.peak == self.lower_bound

    @property
    def gap_percent(self) -> float:
        """How far the peak is above the lower bound."""
        if self.peak == self.lower_bound:
            return 0.0
        return 100 * (self.peak - self.lower_bound) / self.lower_bound if self.lower_bound else float("inf")

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """For JSON. `full` adds `order` (of a graph) and `offsets` (by tensor)."""
        data: dict[str, Any] = {
            "peak": self.peak,
            "lower_bound": self.lower_bound,
            "gap_percent": round(self.gap_percent, 4) if self.lower_bound or not self.peak else None,
            "proven_optimal": self.proven_optimal,
            "seconds": round(self.seconds, 4),
            "solver": self.solver,
        }
        if len(self.spaces) > 1:
            data["spaces"] = [
                {"name": s.name, "peak": s.peak, "lower_bound": s.lower_bound, "capacity": s.capacity}
                for s in self.spaces
            ]
        if full:
            if self.order is not None:
                data["order"] = list(self.order)
            data["offsets"] = {t.id: offset for t, offset in zip(self.tensors, self.offsets)}
        return data
