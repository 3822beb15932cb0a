# SPDX-License-Identifier: Apache-2.0
"""Named tensors with lifetimes, spaces and aliases, and the blocks that they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, overload

import numpy as np
import numpy.typing as npt

from memc.ir.checked_options import is_whole
from memc.ir.errors import InvalidError
from memc.ir.messages import shown as shown_value
from memc.ir.spaces import ARENA
from memc.solvers.placement import BufferColumns, Lives

from .gaps import block_lives, is_lives

Int64s = npt.NDArray[np.int64]

MAX_SIZE = 2**62
"""Bytes of the largest block."""

MAX_ALIGNMENT = 2**40
"""Bytes."""


def shown(text: str) -> str:
    """Text from a file as part of a message of one line."""
    whole = "".join(c if c.isprintable() else "?" for c in text)
    return f"`{whole}`" if len(whole) <= 40 else f"`{whole[:37]}...`"


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
    lives: Lives = ()
    """When it is live, if there are gaps: half-open intervals, the first from `lower`, the last to `upper`. Its bytes are
    not kept in the gaps."""
    alignment: int | None = None
    """Bytes: its offset is a multiple of it. By default the plan's alignment."""


@dataclass(frozen=True, eq=False)
class TensorColumns(Sequence[Tensor]):
    """Tensors held as columns of one length, without an object for each; reads like a list of `Tensor`."""

    ids: Sequence[str]
    lowers: Int64s
    uppers: Int64s
    sizes: Int64s
    offsets: Int64s
    """-1 where a tensor may lie anywhere."""
    aliases: Sequence[str] | None = None
    """Empty text where a tensor is no alias; None if none is."""
    alias_offsets: Int64s | None = None
    """None: all 0."""
    spaces: Sequence[str] | None = None
    """None: all are in the arena."""
    lives: Sequence[Lives] | None = None
    """() where a tensor has no gaps; None if none has."""
    alignments: Int64s | None = None
    """0 where a tensor has the plan's alignment; None if all have."""

    @staticmethod
    def of(tensors: Sequence[Tensor], source: str = "tensors") -> TensorColumns:
        """The tensors as columns; themselves if they are columns. Raises InvalidError for a number beyond 64 bits."""
        if isinstance(tensors, TensorColumns):
            return tensors

        def column(field: str, numbers: list[int]) -> Int64s:
            for index, number in enumerate(numbers):
                if not is_whole(number):
                    raise InvalidError(
                        f"{source}[{index}]: {field}: expected a whole number, got {shown_value(number)}"
                    )
                if not -(2**63) <= number < 2**63:
                    raise InvalidError(f"{source}[{index}]: {field}: expected a whole number of 64 bits, got {number}")
            return np.array(numbers, np.int64)

        for index, tensor in enumerate(tensors):
            _require_text(tensor, f"{source}[{index}]")
            _require_own(tensor, f"{source}[{index}]")
            if tensor.offset is not None and is_whole(tensor.offset) and tensor.offset < 0:
                raise InvalidError(f"{source}[{index}]: offset: expected bytes from 0 to 2**62, got {tensor.offset}")
        return TensorColumns(
            [t.id for t in tensors],
            column("lower", [t.lower for t in tensors]),
            column("upper", [t.upper for t in tensors]),
            column("size", [t.size for t in tensors]),
            column("offset", [-1 if t.offset is None else t.offset for t in tensors]),
            [t.alias or "" for t in tensors] if any(t.alias is not None for t in tensors) else None,
            column("alias_offset", [t.alias_offset for t in tensors]),
            [t.space for t in tensors] if any(t.space != ARENA for t in tensors) else None,
            [t.lives for t in tensors] if any(t.lives for t in tensors) else None,
            column("alignment", [t.alignment or 0 for t in tensors]) if any(t.alignment for t in tensors) else None,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        offset = int(self.offsets[index])
        return Tensor(
            self.ids[index],
            int(self.lowers[index]),
            int(self.uppers[index]),
            int(self.sizes[index]),
            None if offset < 0 else offset,
            (self.aliases[index] or None) if self.aliases is not None else None,
            int(self.alias_offsets[index]) if self.alias_offsets is not None else 0,
            self.spaces[index] if self.spaces is not None else ARENA,
            self.lives[index] if self.lives is not None else (),
            (int(self.alignments[index]) or None) if self.alignments is not None else None,
        )


def _require_text(tensor: object, where: str) -> None:
    """Raise InvalidError for what is no tensor, or has something else where text belongs."""
    if not isinstance(tensor, Tensor):
        raise InvalidError(f"{where}: expected a memc.Tensor, got {shown_value(tensor)}")
    for field, value in (("id", tensor.id), ("space", tensor.space), ("alias", tensor.alias)):
        if not isinstance(value, str) and (field != "alias" or value is not None):
            raise InvalidError(f"{where}: {field}: expected text, got {shown_value(value)}")


def _require_own(tensor: Tensor, where: str) -> None:
    """Raise InvalidError for intervals that are not those of a lifetime, or an alignment out of range."""
    if tensor.lives != () and not is_lives(tensor.lives, tensor.lower, tensor.upper):
        raise InvalidError(
            f"{where}: lives: expected intervals with gaps between them, from lower to upper, got "
            f"{shown_value(tensor.lives)}"
        )
    if tensor.alignment is not None and not (is_whole(tensor.alignment) and 1 <= tensor.alignment <= MAX_ALIGNMENT):
        raise InvalidError(f"{where}: alignment: expected 1 to 2**40 bytes, got {shown_value(tensor.alignment)}")


@dataclass(frozen=True)
class Blocks:
    """What is placed: each tensor with its aliases is one block."""

    buffers: BufferColumns
    """Live from the first of its tensors to the last, but in their gaps; as long as the furthest of them needs. `alignments`
    has 0 for the plan's."""
    spaces: Sequence[str] | None
    """Of each block; None if all are in the arena."""
    block: Int64s
    """Of each tensor, the number of its block."""
    within: Int64s
    """Of each tensor, bytes from the start of its block."""


def blocks_of(tensors: TensorColumns, source: str = "tensors", first_line: int | None = None) -> Blocks:
    """Group tensors with their aliases.

    `source` names them in errors; `first_line` is the line of the first, if they are lines of a file. Raises InvalidError.
    """
    return _Grouping(tensors, source, first_line).blocks()


@dataclass(frozen=True)
class _Grouping:
    tensors: TensorColumns
    source: str
    first_line: int | None

    def fail(self, index: int, field: str, message: str) -> NoReturn:
        place = f"[{index}]" if self.first_line is None else f":{index + self.first_line}"
        raise InvalidError(f"{self.source}{place}: {field}: {message}")

    def blocks(self) -> Blocks:
        t = self.tensors
        self._check()
        if t.aliases is None:
            buffers = BufferColumns(t.sizes, t.lowers, t.uppers, t.offsets, t.lives, t.alignments)
            return Blocks(buffers, t.spaces, np.arange(len(t)), np.zeros(len(t), np.int64))
        is_root = np.fromiter((not alias for alias in t.aliases), np.bool_, len(t))
        roots = self._roots(t.aliases, is_root)
        within = np.zeros(len(t), np.int64)
        if t.alias_offsets is not None:
            within[~is_root] = t.alias_offsets[~is_root]
        self._require((within < 0) | (within > MAX_SIZE), "alias_offset", "expected bytes from 0 to 2**62", within)
        self._require(within > MAX_SIZE - t.sizes, "alias_offset", "expected an end within 2**62 bytes", within)
        # Of each block, by the number of its root.
        sizes, lowers, uppers = t.sizes.copy(), t.lowers.copy(), t.uppers.copy()
        np.maximum.at(sizes, roots, within + t.sizes)
        np.minimum.at(lowers, roots, t.lowers)
        np.maximum.at(uppers, roots, t.uppers)
        offsets = self._fixed(roots, within, is_root)
        number = np.cumsum(is_root, dtype=np.int64) - 1
        lives, alignments = self._lives(roots, is_root), self._alignments(roots, within, is_root)
        buffers = BufferColumns(sizes[is_root], lowers[is_root], uppers[is_root], offsets[is_root], lives, alignments)
        spaces = None if t.spaces is None else [space for space, root in zip(t.spaces, is_root) if root]
        return Blocks(buffers, spaces, number[roots], within)

    def _check(self) -> None:
        """Raise for a tensor that is wrong by itself, or has another's id."""
        t = self.tensors
        if len(set(t.ids)) != len(t):
            seen: set[str] = set()
            for index, name in enumerate(t.ids):
                if name in seen:
                    self.fail(index, "id", f"expected a new id, got {shown(name)} again")
                seen.add(name)
        self._require((t.sizes < 0) | (t.sizes > MAX_SIZE), "size", "expected bytes from 0 to 2**62", t.sizes)
        far = (np.abs(t.lowers) >= 2**62) | (np.abs(t.uppers) >= 2**62)
        far |= (t.lowers == np.iinfo(np.int64).min) | (t.uppers == np.iinfo(np.int64).min)
        for index in np.flatnonzero(far)[:1]:
            self.fail(index, "lower", f"expected times below 2**62, got {t.lowers[index]} to {t.uppers[index]}")
        for index in np.flatnonzero(t.uppers <= t.lowers)[:1]:
            self.fail(index, "upper", f"expected more than lower = {t.lowers[index]}, got {t.uppers[index]}")
        self._require(t.offsets > MAX_SIZE, "offset", "expected bytes from 0 to 2**62", t.offsets)

    def _require(self, wrong: npt.NDArray[np.bool_], field: str, expected: str, values: Int64s) -> None:
        for index in np.flatnonzero(wrong)[:1]:
            self.fail(index, field, f"{expected}, got {values[index]}")

    def _roots(self, aliases: Sequence[str], is_root: npt.NDArray[np.bool_]) -> Int64s:
        """Of each tensor: that in whose block it lies, itself for most."""
        spaces = self.tensors.spaces
        at = {name: index for index, name in enumerate(self.tensors.ids)}
        roots = np.arange(len(self.tensors))
        for index in np.flatnonzero(~is_root).tolist():
            root = at.get(aliases[index])
            if root is None or not is_root[root]:
                self.fail(
                    index, "alias", f"expected the id of a tensor that is no alias itself, got {shown(aliases[index])}"
                )
            if spaces is not None and spaces[index] not in (ARENA, spaces[root]):
                self.fail(
                    index,
                    "space",
                    f"expected {shown(spaces[root])} as {shown(aliases[index])} has, got {shown(spaces[index])}",
                )
            roots[index] = root
        return roots

    def _lives(self, roots: Int64s, is_root: npt.NDArray[np.bool_]) -> list[Lives] | None:
        """Of each block: when it is live, if there are gaps."""
        t = self.tensors
        if t.lives is None:
            return None
        members: dict[int, list[Lives]] = {}
        for index, root in enumerate(roots.tolist()):
            whole = ((int(t.lowers[index]), int(t.uppers[index])),)
            members.setdefault(root, []).append(t.lives[index] or whole)
        return [block_lives(members[root]) for root in np.flatnonzero(is_root).tolist()]

    def _alignments(self, roots: Int64s, within: Int64s, is_root: npt.NDArray[np.bool_]) -> Int64s | None:
        """Of each block: an alignment by which all of its tensors have theirs; 0 for the plan's."""
        own = self.tensors.alignments
        if own is None:
            return None
        blocks: Int64s = own.copy()
        for index in np.flatnonzero(~is_root & (own > 0)).tolist():
            root, alignment = int(roots[index]), int(own[index])
            if within[index] % alignment:
                self.fail(
                    index, "alias_offset", f"expected a multiple of its alignment {alignment}, got {within[index]}"
                )
            common = math.lcm(max(1, int(blocks[root])), alignment)
            if common > MAX_ALIGNMENT:
                self.fail(index, "alignment", f"expected 2**40 bytes at most with its alias, got {common}")
            blocks[root] = common
        return blocks[is_root]

    def _fixed(self, roots: Int64s, within: Int64s, is_root: npt.NDArray[np.bool_]) -> Int64s:
        """Of each root: where its block must lie, as it or one of its aliases says; -1 if none does."""
        offsets: Int64s = self.tensors.offsets.copy()
        for index in np.flatnonzero(~is_root & (offsets >= 0)).tolist():
            root, fixed = roots[index], offsets[index] - within[index]
            if fixed < 0 or offsets[root] not in (-1, fixed):
                name = self.tensors.ids[root]
                message = f"expected the offset of {shown(name)} + {within[index]}, got {offsets[index]}"
                self.fail(index, "offset", message)
            offsets[root] = fixed
        return offsets
