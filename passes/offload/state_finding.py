# SPDX-License-Identifier: Apache-2.0
"""What a plan of states on the host counts on, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memc.ir.copies import is_copy
from memc.ir.core import Function
from memc.ir.cost_model import CostModel
from memc.passes.base import Finding
from memc.passes.offload.state_updates import StateUpdates
from memc.solvers.offload import Lanes


@dataclass(frozen=True)
class How:
    """What a plan of states counts on."""

    costs: CostModel
    link: str
    """The name of what states are copied over."""
    origin: str
    """Where its rates are from, in words."""
    lanes: Lanes
    least: int
    """Bytes that a state must have to be copied."""
    alignment: int


@dataclass(frozen=True)
class StatesOnHost(Finding):
    """States on the host, and what that takes in the cost model."""

    states: tuple[str, ...]
    """Their names."""
    bytes: int
    """Of them."""
    bytes_in: int
    """That a step copies in."""
    bytes_out: int
    groups: int
    """Of updates, each between two places where ops and copies wait for each other."""
    window: int
    """The most bytes of states in the arena at one time."""
    added: int
    """Picoseconds by which a step takes longer than without these copies."""
    once: int
    """Picoseconds of one run of every op."""
    reasons: Mapping[str, str]
    """Why the others stay on the device, by their names."""
    how: How
    staying: int = 0
    """Bytes of states that lie in the arena when a step ends, and leave when the next one begins."""


UNASKED = "its copies would take ops time that nothing asks for"
"""Why a state stays that may lie on the host."""


def once(function: Function, how: How) -> int:
    """Picoseconds of one run of every op, without what is recomputed."""
    return sum(how.costs.cost(op) for op in function.ops if not op.plan.recompute and not is_copy(op))


def nothing_moved(function: Function, how: How) -> StatesOnHost:
    """What is said of a function all of whose states stay on the device."""
    found = StateUpdates.of(function, how.least)
    movable = sorted(state.name for update in found.updates for state in update.states)
    return StatesOnHost(
        (), 0, 0, 0, 0, 0, 0, once(function, how), {**found.reasons, **dict.fromkeys(movable, UNASKED)}, how
    )
