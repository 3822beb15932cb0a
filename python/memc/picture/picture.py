# SPDX-License-Identifier: Apache-2.0
"""What a picture of a plan shows, whatever the plan is of. Times are steps: ops of a program, moments of a problem, or events of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from memc.ir.sizes import align
from memc.solvers.lane_clock import Way

Int64s = npt.NDArray[np.int64]

BLOCKS, BEFORE = "blocks", "in use before the history"
"""Roles of what a memory snapshot has."""

Interval = tuple[int, int]
"""Steps from the first to the one after the last."""


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """Bytes at an address for some time."""

    name: str
    lives: tuple[Interval, ...]
    """When it is live, in order: one interval, or several with gaps between them."""
    offset: int
    """Bytes from the start of its space."""
    nbytes: int
    space: int = 0
    """Index in `PlanPicture.spaces`."""
    role: str = "tensors"
    type: str = ""
    decision: str = ""
    """What was decided of it, such as `kept` or `recomputed`; empty where nothing was decided."""
    reason: str = ""
    """Why, in words."""
    place: str = ""
    """Where in the source it comes from."""
    others: tuple[str, ...] = ()
    """Names of other values that lie in its bytes."""
    uses: tuple[int, ...] = ()
    """Steps that write or read it, in ascending order; empty if they are not known."""

    @property
    def lower(self) -> int:
        """The first step at which it is live."""
        return self.lives[0][0]

    @property
    def upper(self) -> int:
        """The step after the last."""
        return self.lives[-1][1]


@dataclass(frozen=True)
class PictureSpace:
    """A memory space. Sizes are bytes."""

    name: str
    nbytes: int
    """What the plan takes of it."""
    lower_bound: int | None = None
    """What no addresses are below; None where that is not known."""
    budget: int | None = None
    """What it may take; None where nothing limits it."""
    alignment: int = 1
    """Sizes are rounded up to it where live bytes are counted."""


@dataclass(frozen=True, slots=True)
class PictureStep:
    """What happens in one step."""

    name: str
    """Such as the op."""
    result: str = ""
    place: str = ""
    """Where in the source it comes from."""


@dataclass(frozen=True, slots=True)
class CopySpan:
    """A copy between the device and the host. Times are in steps, with fractions: when bytes move beside ops."""

    name: str
    way: Way
    begin: float
    end: float
    nbytes: int
    waited: float = 0.0
    """Seconds that ops wait for it."""


StepUnit = Literal["op", "step", "event"]


@dataclass(frozen=True)
class PlanPicture:
    """A plan as it is drawn."""

    title: str
    unit: StepUnit
    """What one step is."""
    steps: int
    """How many steps there are."""
    spaces: tuple[PictureSpace, ...]
    tensors: Sequence[PlacedTensor]
    ops: Sequence[PictureStep] = ()
    """Of each step; empty if nothing is known of them."""
    seconds: Sequence[float] = ()
    """When each step begins, and when the last ends; empty if that is not known."""
    seconds_from: str = ""
    """What says so: a cost model or measured times."""
    copies: Sequence[CopySpan] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Labels and values for the head of the page."""
    moments: Sequence[int] = ()
    """The number that each step has in the source, and that of the end; empty if steps are numbered from 0 on. Steps at which nothing begins
    or ends are left out where there are very many."""

    def moment(self, step: int) -> int:
        """The number of a step in the source."""
        return self.moments[step] if self.moments else step

    def steps_of(self, tensor: PlacedTensor) -> int:
        """How many steps of the source a tensor is live for."""
        return sum(self.moment(upper) - self.moment(lower) for lower, upper in tensor.lives)

    def roles(self) -> list[str]:
        """The roles that there are, by how many bytes times steps they take, most first."""
        taken: dict[str, int] = {}
        for tensor in self.tensors:
            taken[tensor.role] = taken.get(tensor.role, 0) + tensor.nbytes * self.steps_of(tensor)
        return sorted(taken, key=lambda role: (-taken[role], role))

    def live_bytes(self, space: int = 0, role: str | None = None) -> Int64s:
        """Bytes that are live at each step, of one role or all; sizes are rounded up to the space's alignment."""
        change = np.zeros(self.steps + 1, np.int64)
        alignment = self.spaces[space].alignment
        for tensor in self.tensors:
            if tensor.space == space and role in (None, tensor.role):
                size = align(tensor.nbytes, alignment)
                for lower, upper in tensor.lives:
                    change[lower] += size
                    change[upper] -= size
        return np.cumsum(change)[: self.steps]

    def peak_step(self, space: int = 0) -> int:
        """The first step with the most bytes live; 0 where there are no steps."""
        live = self.live_bytes(space)
        return int(live.argmax()) if len(live) else 0

    def live_at(self, step: int, space: int = 0) -> list[PlacedTensor]:
        """The tensors that are live at a step, largest first."""
        found = [
            tensor
            for tensor in self.tensors
            if tensor.space == space and any(lower <= step < upper for lower, upper in tensor.lives)
        ]
        return sorted(found, key=lambda tensor: (-tensor.nbytes, tensor.name))
