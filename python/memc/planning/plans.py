# SPDX-License-Identifier: Apache-2.0
"""What `memc.plan` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .tensors import Tensor


@dataclass(frozen=True)
class SpacePlan:
    """One memory space. All figures are in bytes."""

    name: str
    peak: int
    lower_bound: int
    capacity: int | None = None


@dataclass(frozen=True)
class Plan:
    """Where every tensor lies, and how good that is."""

    peak: int
    """Bytes, over all spaces."""
    lower_bound: int
    """Bytes: no plan has a lower peak; with `reorder`, no order either."""
    seconds: float
    solver: str
    tensors: Sequence[Tensor]
    """For a graph or module: its storages, by name."""
    offsets: Sequence[int]
    """Of each tensor, bytes from the start of its space."""
    spaces: Sequence[SpacePlan]
    order: Sequence[int] | None = None
    """Of a graph: its ops by index, in execution order."""

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
