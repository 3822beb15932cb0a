# SPDX-License-Identifier: Apache-2.0
"""Which tensors do not fit into the capacity of their space, where no plan does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memc.ir.errors import BudgetError
from memc.solvers.placement import Problem, find_conflict

from .tensors import shown

NAMED = 8
"""Tensors that a message names at most."""


@dataclass(frozen=True)
class Unfit:
    """Tensors of one space that do not fit into its capacity together."""

    space: str
    capacity: int
    """Bytes."""
    tensors: Sequence[str]
    """By id; of a tensor with aliases, the one that the others are aliases of."""
    bytes: int
    """Their sizes, rounded up, in all."""
    moment: int | None
    """The time step at which all of them are live and together exceed the capacity; None if there is none."""
    proven: bool
    """Whether it is proven that they do not fit; otherwise no plan of theirs was found."""
    minimal: bool
    """Whether they fit as soon as any one of them is left out."""

    def text(self) -> str:
        """What a message says of them."""
        names = ", ".join(map(shown, self.tensors[:NAMED]))
        if len(self.tensors) > NAMED:
            names += f" and {len(self.tensors) - NAMED} more"
        if self.moment is not None:
            return f"live at step {self.moment} with {self.bytes} bytes: {names}"
        found = "" if self.minimal else "at most "
        proof = "" if self.proven else ", not proven"
        return f"a set that does not fit ({found}{len(self.tensors)} of the tensors{proof}): {names}"


class CapacityError(BudgetError):
    """No plan found keeps the capacity. `unfit`: tensors that do not fit, if some were found."""

    def __init__(self, message: str, unfit: Unfit | None = None) -> None:
        super().__init__(message)
        self.unfit = unfit

    def to_dict(self) -> dict[str, Any]:
        """For JSON: `error`, and `unfit` with the fields of `Unfit`, or null."""
        unfit = None if self.unfit is None else {**asdict(self.unfit), "tensors": list(self.unfit.tensors)}
        return {"error": str(self), "unfit": unfit}


def find_unfit(
    problem: Problem, names: Sequence[str], space: str, time_limit: float | None, threads: int | None
) -> Unfit | None:
    """Tensors that do not fit; None if a plan is found after all, or no fewer than all were looked at.

    `names`: of each buffer. The limits are those of `find_conflict`.
    """
    conflict = find_conflict(problem, time_limit=time_limit, threads=threads)
    if conflict is None or not (conflict.proven or len(conflict.buffers) < len(problem.buffers)):
        return None
    chosen = conflict.buffers
    sizes = [-(-problem.buffers[i].size // problem.alignment) * problem.alignment for i in chosen]
    ids = [names[i] for i in chosen]
    return Unfit(space, problem.capacity, ids, sum(sizes), conflict.moment, conflict.proven, conflict.minimal)
