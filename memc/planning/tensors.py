# SPDX-License-Identifier: Apache-2.0
"""Named tensors with lifetimes, spaces and aliases, and the blocks that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from memc.ir.errors import InvalidError
from memc.passes.solvers import Buffer

MAX_SIZE = 2**62
"""Bytes of the largest block."""

ARENA = "arena"
"""The space of a tensor that names none."""


@dataclass(frozen=True)
class Tensor:
    """Bytes that are needed for some time."""

    id: str
    lower: int
    """First time step at which it is live."""
    upper: int
    """Time step after the last."""
    size: int
    """Bytes."""
    offset: int | None = None
    """Bytes from the start of its space, if it must lie there."""
    alias: str | None = None
    """The tensor in whose block it lies; that tensor has no alias itself."""
    alias_offset: int = 0
    """Bytes from the start of `alias`."""
    space: str = ARENA


@dataclass(frozen=True)
class Blocks:
    """What is placed: each tensor with its aliases is one block."""

    buffers: list[Buffer]
    """Live from the first of its tensors to the last, and as long as the furthest of them needs."""
    spaces: list[str]
    """Of each block."""
    block: list[int]
    """Of each tensor, the number of its block."""
    within: list[int]
    """Of each tensor, bytes from the start of its block."""


def blocks_of(tensors: Sequence[Tensor], source: str = "tensors", first_line: int | None = None) -> Blocks:
    """Group tensors with their aliases.

    `source` names them in errors; `first_line` is the line of the first, if they are lines of a file. Raises InvalidError.
    """

    def fail(index: int, field: str, message: str) -> NoReturn:
        place = f"[{index}]" if first_line is None else f":{index + first_line}"
        raise InvalidError(f"{source}{place}: {field}: {message}")

    at: dict[str, int] = {}
    for index, tensor in enumerate(tensors):
        if at.setdefault(tensor.id, index) != index:
            fail(index, "id", f"expected a new id, got `{tensor.id}` again")
        if not 0 <= tensor.size <= MAX_SIZE:
            fail(index, "size", f"expected bytes from 0 to 2**62, got {tensor.size}")
        if tensor.upper <= tensor.lower:
            fail(index, "upper", f"expected more than lower = {tensor.lower}, got {tensor.upper}")
        if max(abs(tensor.lower), abs(tensor.upper)) >= 2**62:
            fail(index, "lower", f"expected times below 2**62, got {tensor.lower} to {tensor.upper}")
        if not 0 <= (tensor.offset or 0) <= MAX_SIZE:
            fail(index, "offset", f"expected bytes from 0 to 2**62, got {tensor.offset}")
    block, within = [-1] * len(tensors), [0] * len(tensors)
    buffers: list[Buffer] = []
    spaces: list[str] = []
    for index, tensor in enumerate(tensors):
        if tensor.alias is None:
            block[index] = len(buffers)
            buffers.append(Buffer(tensor.size, tensor.lower, tensor.upper, tensor.offset))
            spaces.append(tensor.space)
    for index, tensor in enumerate(tensors):
        if tensor.alias is None:
            continue
        root = at.get(tensor.alias)
        if root is None or tensors[root].alias is not None:
            fail(index, "alias", f"expected the id of a tensor that is no alias itself, got `{tensor.alias}`")
        if not 0 <= tensor.alias_offset <= MAX_SIZE:
            fail(index, "alias_offset", f"expected bytes from 0 to 2**62, got {tensor.alias_offset}")
        if tensor.space not in (ARENA, tensors[root].space):
            fail(index, "space", f"expected {tensors[root].space} as `{tensor.alias}` has, got {tensor.space}")
        block[index], within[index] = block[root], tensor.alias_offset
        whole = buffers[block[root]]
        size = max(whole.size, tensor.alias_offset + tensor.size)
        if size > MAX_SIZE:
            fail(index, "alias_offset", f"expected an end within 2**62 bytes, got {size}")
        fixed = whole.offset
        if tensor.offset is not None:
            fixed = tensor.offset - tensor.alias_offset
            if fixed < 0 or whole.offset not in (None, fixed):
                fail(
                    index,
                    "offset",
                    f"expected the offset of `{tensor.alias}` + {tensor.alias_offset}, got {tensor.offset}",
                )
        buffers[block[root]] = Buffer(size, min(whole.lower, tensor.lower), max(whole.upper, tensor.upper), fixed)
    return Blocks(buffers, spaces, block, within)
