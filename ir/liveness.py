# SPDX-License-Identifier: Apache-2.0
"""Spaces, storages, lifetimes, live sets and peaks: the sole authority on how long bytes are needed.

A *storage* is a root value with everything that aliases it. Its space (`ir/spaces.py`) is that of its placement, else

    input                     `io`
    weight, state, constant   `weights`
    returned value            `io`: a buffer given to each run
    copy by `offload_start`   `host`, where a weight or state that `prefetch_start` reads lies too
    anything else             `arena`, where a state that `offload_start` reads lies too

Time is the index of an op in its function. A storage is live from the first op that writes any of its bytes to
the last op that reads or writes any of them: the half-open interval [lower, upper). So everything that an op reads
or writes, and its workspace, is live together during that op, and an unused result is live for one step. The bytes of a copy
are live from its start, and its source to its done, which reads it. Weights and states in `host` are live all the time; a state in
the arena from the first op to its last reader before its absence, and again from the copy that brings it back to the last op.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .copies import arena_states, host_params, is_copy, is_host_value
from .core import Function, Role, Value
from .sizes import align
from .spaces import ARENA as ARENA
from .spaces import HOST, IO, WEIGHTS, is_shared_buffer
from .target import ALIGNMENT as ALIGNMENT


@dataclass(frozen=True)
class Lifetime:
    """One storage of results or workspace: `nbytes` bytes (unrounded) live in [lower, upper), in op indices. A state in the arena has
    two, one on each side of its absence, at one address."""

    root: Value
    lower: int
    upper: int
    nbytes: int


def output_roots(function: Function) -> set[Value]:
    """Roots whose bytes are exactly those of a returned value; parameters and constants are not among them."""
    return {v.root for v in function.returns if covers_root(v) and not is_fixed(v.root)}


def covers_root(value: Value) -> bool:
    """Whether the bytes of `value` are all of its storage."""
    return value.offset_in_root == 0 and value.type.nbytes == value.root.type.nbytes


def is_fixed(root: Value) -> bool:
    """Whether a root is a parameter or constant: it has bytes of its own, which no op may write."""
    return root.op is None or root.op.name == "constant"


def updates_state(value: Value) -> bool:
    """Whether a returned value is the new content of a state, written over the old one: callers are not given it."""
    return value.alias is not None and value.root.role is Role.STATE and covers_root(value)


def space_of(function: Function, value: Value) -> str:
    """The name of the space of `value`'s storage. Linear in the returns, and for weights and states in the ops."""
    root = value.root
    if root.op is None:
        if root.role in (None, Role.INPUT):
            return IO
        if root in host_params(function):
            return HOST
        return ARENA if root in arena_states(function) else WEIGHTS
    if root.op.name == "constant":
        return WEIGHTS
    for returned in function.returns:
        if returned.root is root and covers_root(returned):
            return IO
    return placed_space(root)


def placed_space(root: Value) -> str:
    """The space of the placement of a storage of results; where it is not known yet, the arena, or `host` for copies there."""
    place = root.placement
    if place is not None and not is_shared_buffer(place.space):
        return place.space
    return HOST if is_host_value(root) else ARENA


def lifetimes(function: Function, space: str = ARENA) -> list[Lifetime]:
    """A space's storages (workspaces included), in the order in which they become live."""
    outside = output_roots(function)
    always = host_params(function) if space == HOST else []
    resting = dict.fromkeys(arena_states(function) if space == ARENA else [], 0)
    """Arena states that are not back yet, each with the end of its first lifetime."""
    again: dict[Value, int] = {}
    lower: dict[Value, int] = dict.fromkeys(always, 0)
    upper: dict[Value, int] = {}
    for index, op in enumerate(function.ops):
        written = op.results if op.workspace is None else [*op.results, op.workspace]
        for value in written:
            root = value.root
            if root in resting and root not in again:
                again[root] = index
            if root not in lower:
                if is_fixed(root) or root in outside or placed_space(root) != space:
                    continue
                lower[root] = index
            upper[root] = index + 1
        for value in op.operands:
            if value.root in upper:
                upper[value.root] = index + 1
            elif value.root in resting and value.root not in again:
                resting[value.root] = index + 1
    end = len(function.ops)
    upper.update(dict.fromkeys(always, end))
    found = [Lifetime(root, lower[root], upper[root], root.type.nbytes) for root in lower]
    for root, upto in resting.items():
        begin = again.get(root, upto)
        parts = [(0, end)] if begin <= upto else [(0, upto), (begin, end)]
        found += [Lifetime(root, *part, root.type.nbytes) for part in parts]
    return sorted(found, key=lambda life: life.lower) if resting else found


def live_bytes(lives: Iterable[Lifetime], steps: int, alignment: int = ALIGNMENT) -> list[int]:
    """Bytes live during each of `steps` ops, every storage rounded up to `alignment`."""
    change = [0] * (steps + 1)
    for life in lives:
        size = align(life.nbytes, alignment)
        change[life.lower] += size
        change[life.upper] -= size
    total = 0
    for index, delta in enumerate(change):
        total += delta
        change[index] = total
    return change[:steps]


def lower_bound(lives: Sequence[Lifetime], alignment: int = ALIGNMENT) -> int:
    """Bytes of the largest live set: no arena for this order can be smaller."""
    return max(live_bytes(lives, max((life.upper for life in lives), default=0), alignment), default=0)


def peak(function: Function, alignment: int = ALIGNMENT) -> int:
    """The lower bound of `function` as it stands, in bytes."""
    return lower_bound(lifetimes(function), alignment)


def arena_bytes(function: Function, alignment: int = ALIGNMENT) -> int:
    """Size of the arena of a planned function, in bytes."""
    return space_bytes(function, ARENA, alignment)


def space_bytes(function: Function, space: str, alignment: int = ALIGNMENT) -> int:
    """Size of a space of a planned function: the greatest end of a placement in it, rounded up to `alignment`."""
    ends = (
        align(value.placement.offset + value.type.nbytes, alignment)
        for value in function.values()
        if value.placement is not None and value.placement.space == space
    )
    return max(ends, default=0)


def unoptimized_bytes(function: Function, alignment: int = ALIGNMENT) -> int:
    """Bytes if every result and workspace in the arena had its own: no aliases, no sharing, what -O0 uses.

    Results that are returned, and constants, are outside the arena. Dead results count: -O0 keeps them too. Copies between
    spaces do not: they are there because of the optimizations.
    """
    returned = set(function.returns)
    return sum(
        align(value.type.nbytes, alignment)
        for value in function.values()
        if value.op is not None and value.op.name != "constant" and value not in returned and not is_copy(value.op)
    )
