# SPDX-License-Identifier: Apache-2.0
"""The footprint of a function."""

from __future__ import annotations

from collections.abc import Iterable

from .copies import arena_states, host_params
from .core import Function, Role, Value
from .footprint import FIXED, INPUTS, OUTPUTS, STATES, WORKSPACE, Footprint, SpaceFootprint
from .liveness import lifetimes, lower_bound, space_bytes, updates_state
from .sizes import align
from .spaces import IO, WEIGHTS, Space
from .target import Target


def footprint_of(function: Function, target: Target) -> Footprint:
    """What a function takes as it is placed."""
    return Footprint(tuple(_of_space(function, space, target.alignment) for space in target.spaces), target.device)


def _of_space(function: Function, space: Space, alignment: int) -> SpaceFootprint:
    if space.holds == "values":
        lives = lifetimes(function, space.name)
        roots = {life.root for life in lives}
        scratch = (op.workspace for op in function.ops if op.workspace is not None and op.workspace in roots)
        kinds = {WORKSPACE: max((value.type.nbytes for value in scratch), default=0)}
        nbytes, bound = space_bytes(function, space.name, alignment), lower_bound(lives, alignment)
        return SpaceFootprint(space.name, space.device, nbytes, kinds, bound)
    kinds = _weight_kinds(function, alignment) if space.holds == "weights" else _io_kinds(function)
    kinds = kinds if space.name in (WEIGHTS, IO) else dict.fromkeys(kinds, 0)
    return SpaceFootprint(space.name, space.device, sum(kinds.values()), kinds)


def _weight_kinds(function: Function, alignment: int) -> dict[str, int]:
    """Bytes of the weight slab, each tensor rounded up to `alignment`."""

    def total(values: Iterable[Value]) -> int:
        return sum(align(value.type.nbytes, alignment) for value in values)

    constants = [op.result for op in function.ops if op.name == "constant"]
    elsewhere = {*host_params(function), *arena_states(function)}
    return {
        FIXED: total([*(p for p in function.params_of(Role.WEIGHT) if p not in elsewhere), *constants]),
        STATES: total(p for p in function.params_of(Role.STATE) if p not in elsewhere),
    }


def _io_kinds(function: Function) -> dict[str, int]:
    """Bytes of the caller's tensors, unpadded."""
    return {
        INPUTS: sum(p.type.nbytes for p in function.params_of(Role.INPUT)),
        OUTPUTS: sum(v.type.nbytes for v in function.returns if not updates_state(v)),
    }
