# SPDX-License-Identifier: Apache-2.0
"""Spaces, storages, lifetimes, live sets and peaks: the sole authority on how long bytes are needed.

A *storage* is a root value with everything that aliases it. Its space is derived, never stored:

    parameter         the parameter's role (`input`, `weight`, `state`)
    `constant` op     `weight`
    returned value    `output`: a buffer given to each run, outside the arena
    anything else     `arena`

Time is the index of an op in its function. A storage is live from the first op that writes any of its bytes to
the last op that reads or writes any of them: the half-open interval [lower, upper). So everything that an op reads
or writes, and its workspace, is live together during that op, and an unused result is live for one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .core import Function, Role, Value
from .target import ALIGNMENT as ALIGNMENT

ARENA = "arena"
OUTPUT = "output"


@dataclass(frozen=True)
class Lifetime:
    """One storage in the arena: `nbytes` bytes (unrounded) live in [lower, upper), in op indices."""

    root: Value
    lower: int
    upper: int
    nbytes: int


def align(nbytes: int, alignment: int) -> int:
    """`nbytes` rounded up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


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
    """The space of `value`'s storage: `input`, `weight`, `state`, `output` or `arena`. Linear in the returns."""
    root = value.root
    if root.op is None:
        return (root.role or Role.INPUT).value
    if root.op.name == "constant":
        return Role.WEIGHT.value
    for returned in function.returns:
        if returned.root is root and covers_root(returned):
            return OUTPUT
    return ARENA


def lifetimes(function: Function) -> list[Lifetime]:
    """The arena's storages (workspaces included), in the order in which they become live."""
    outside = output_roots(function)
    lower: dict[Value, int] = {}
    upper: dict[Value, int] = {}
    for index, op in enumerate(function.ops):
        written = op.results if op.workspace is None else [*op.results, op.workspace]
        for value in written:
            root = value.root
            if root not in lower:
                if is_fixed(root) or root in outside:
                    continue
                lower[root] = index
            upper[root] = index + 1
        for value in op.operands:
            if value.root in upper:
                upper[value.root] = index + 1
    return [Lifetime(root, lower[root], upper[root], root.type.nbytes) for root in lower]


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
    """Size of the arena of a planned function: the greatest end of a placement, rounded up to `alignment`."""
    ends = (
        align(value.placement.offset + value.type.nbytes, alignment)
        for value in function.values()
        if value.placement is not None and value.placement.space == ARENA
    )
    return max(ends, default=0)


def unoptimized_bytes(function: Function, alignment: int = ALIGNMENT) -> int:
    """Bytes if every result and workspace in the arena had its own: no aliases, no sharing, what -O0 uses.

    Results that are returned, and constants, are outside the arena. Dead results count: -O0 keeps them too.
    """
    returned = set(function.returns)
    return sum(
        align(value.type.nbytes, alignment)
        for value in function.values()
        if value.op is not None and value.op.name != "constant" and value not in returned
    )


def weights_bytes(function: Function, alignment: int) -> int:
    """Bytes of the weight slab: weights and inline constants, each rounded up to `alignment`."""
    sizes = [p.type.nbytes for p in function.params_of(Role.WEIGHT, Role.STATE)]
    sizes += [op.result.type.nbytes for op in function.ops if op.name == "constant"]
    return sum(align(size, alignment) for size in sizes)


def io_bytes(function: Function) -> int:
    """Bytes of the caller's inputs and of the outputs, unpadded."""
    inputs = sum(p.type.nbytes for p in function.params_of(Role.INPUT))
    return inputs + sum(v.type.nbytes for v in function.returns if not updates_state(v))
