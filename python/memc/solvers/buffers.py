# SPDX-License-Identifier: Apache-2.0
"""Buffers of a placement problem, one by one and as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

Lives = tuple[tuple[int, int], ...]
"""Half-open intervals of time steps, ascending, with a gap between each two."""


@dataclass(frozen=True)
class Buffer:
    """Bytes that are needed for some time steps."""

    size: int
    """Bytes, 0 to 2**62."""
    lower: int
    """First time step at which it is live."""
    upper: int
    """Time step after the last; greater than `lower`."""
    offset: int | None = None
    """Bytes from the arena's start if it must lie there (a multiple of the alignment)."""
    lives: Lives = ()
    """When it is live, if there are gaps: the first interval begins at `lower`, the last ends at `upper`. Its bytes are not
    kept in the gaps. Empty: live throughout."""
    alignment: int | None = None
    """Bytes: its offset is a multiple of it. It is a multiple of the problem's alignment itself, which None stands for."""

    @staticmethod
    def of_lives(size: int, lives: Lives, offset: int | None = None, alignment: int | None = None) -> Buffer:
        """A buffer live in these intervals. Raises ValueError if there are none."""
        if not lives:
            raise ValueError("lives: expected one interval at least, got none")
        return Buffer(size, lives[0][0], lives[-1][1], offset, tuple(lives) if len(lives) > 1 else (), alignment)


class BufferColumns(Sequence[Buffer]):
    """Buffers held as arrays of one length; reads like a list of `Buffer`.

    Units are those of `Buffer`; `offsets` has -1 where a buffer may lie anywhere, and is left out if all may; `lives` has
    () where a buffer has no gaps, `alignments` has 0 where it has the problem's, and each is left out if that holds for
    all. Raises ValueError if the columns are not one-dimensional, of one length and of integers.
    """

    def __init__(
        self,
        sizes: npt.ArrayLike,
        lowers: npt.ArrayLike,
        uppers: npt.ArrayLike,
        offsets: npt.ArrayLike | None = None,
        lives: Sequence[Lives] | None = None,
        alignments: npt.ArrayLike | None = None,
    ) -> None:
        self.sizes = _column(sizes, "sizes")
        self.lowers = _column(lowers, "lowers")
        self.uppers = _column(uppers, "uppers")
        free = np.full(len(self.sizes), -1, np.int64)
        self.offsets = free if offsets is None else _column(offsets, "offsets")
        self.lives = lives if lives is not None and any(lives) else None
        self.alignments = None if alignments is None else _column(alignments, "alignments")
        for name, column in (
            ("lowers", self.lowers),
            ("uppers", self.uppers),
            ("offsets", self.offsets),
            ("lives", self.lives),
            ("alignments", self.alignments),
        ):
            if column is not None and len(column) != len(self.sizes):
                raise ValueError(f"{name}: expected {len(self.sizes)} values, one for each size, got {len(column)}")
        if (wrong := np.flatnonzero(self.offsets < -1)).size:
            raise ValueError(f"buffer {wrong[0]}: fixed offset {self.offsets[wrong[0]]} is negative")
        if self.alignments is not None:
            if (wrong := np.flatnonzero(self.alignments < 0)).size:
                raise ValueError(f"buffer {wrong[0]}: alignment {self.alignments[wrong[0]]} is negative")
            if not self.alignments.any():
                self.alignments = None

    @staticmethod
    def of(buffers: Sequence[Buffer]) -> BufferColumns:
        """The buffers as columns; themselves if they are columns."""
        if isinstance(buffers, BufferColumns):
            return buffers
        for index, buffer in enumerate(buffers):
            if buffer.offset is not None and buffer.offset < 0:
                raise ValueError(f"buffer {index}: fixed offset {buffer.offset} is negative")
            if buffer.alignment is not None and buffer.alignment < 1:
                raise ValueError(f"buffer {index}: alignment {buffer.alignment} is not positive")
        return BufferColumns(
            np.array([b.size for b in buffers], np.int64),
            np.array([b.lower for b in buffers], np.int64),
            np.array([b.upper for b in buffers], np.int64),
            np.array([-1 if b.offset is None else b.offset for b in buffers], np.int64),
            [b.lives for b in buffers],
            np.array([b.alignment or 0 for b in buffers], np.int64),
        )

    def take(self, indices: Int64s) -> BufferColumns:
        """The buffers at these indices, in their order."""
        return BufferColumns(
            self.sizes[indices],
            self.lowers[indices],
            self.uppers[indices],
            self.offsets[indices],
            None if self.lives is None else [self.lives[index] for index in indices.tolist()],
            None if self.alignments is None else self.alignments[indices],
        )

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> Buffer: ...
    @overload
    def __getitem__(self, index: slice) -> BufferColumns: ...
    def __getitem__(self, index: int | slice) -> Buffer | BufferColumns:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        offset = int(self.offsets[index])
        alignment = 0 if self.alignments is None else int(self.alignments[index])
        return Buffer(
            int(self.sizes[index]),
            int(self.lowers[index]),
            int(self.uppers[index]),
            None if offset < 0 else offset,
            () if self.lives is None else self.lives[index],
            alignment or None,
        )


def _column(values: npt.ArrayLike, name: str) -> Int64s:
    """A contiguous column of integers."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)  # An empty list makes an array of reals.
    if array.ndim != 1 or not np.can_cast(array.dtype, np.int64):
        raise ValueError(f"{name}: expected one dimension of integers up to 64 bits, got {array.ndim} of {array.dtype}")
    return np.ascontiguousarray(array, np.int64)
