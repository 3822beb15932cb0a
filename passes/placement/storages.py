# SPDX-License-Identifier: Apache-2.0
"""Storages that are joined while aliases are planned, and what is live meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memc.ir.core import Value
from memc.ir.interval_index import IntervalIndex
from memc.ir.sizes import align

MANY = 64
"""Where more than one in so many ops has a change of the live bytes, all changes are summed up in one sweep."""


@dataclass(eq=False, slots=True)
class Storage:
    """Bytes that several values use, one after another or together."""

    root: Value
    size: int
    """Bytes, unrounded."""
    lower: int
    upper: int
    """Half-open interval of op indices in which any member is written or read."""
    fixed: bool = False
    """A parameter's or constant's: never written."""
    output: bool = False
    """Holds exactly a returned value, or lies in another space: it is outside the arena."""
    copied: bool = False
    """A copy between spaces writes to it: it is never what the caller is given."""
    members: list[Value] = field(default_factory=list)
    pending: IntervalIndex[Value] | None = None
    """Members that may still be read, by their bytes; those that are done are dropped as they are met. None while that is the
    root alone: most storages never have another member."""

    def indexed(self) -> IntervalIndex[Value]:
        """`pending`, made if need be."""
        if self.pending is None:
            self.pending = IntervalIndex()
            self.pending.add(0, self.size, self.root)
        return self.pending


class LiveBytes:
    """Rounded bytes live in the arena during each op, while storages come and go. Changes wait until somebody looks."""

    def __init__(self, live: npt.NDArray[np.int64], alignment: int) -> None:
        self.live = live
        self.alignment = alignment
        self.changes: list[tuple[int, int, int]] = []
        """Bytes to be added from one op on, up to another."""

    def add(self, storage: Storage) -> None:
        """Count a storage."""
        if not storage.fixed and not storage.output:
            self.changes.append((storage.lower, storage.upper, align(storage.size, self.alignment)))

    def take(self, storage: Storage) -> None:
        """Count a storage no longer."""
        if not storage.fixed and not storage.output:
            self.changes.append((storage.lower, storage.upper, -align(storage.size, self.alignment)))

    def now(self) -> npt.NDArray[np.int64]:
        """Bytes by op; later changes may be written into the array."""
        if len(self.changes) > len(self.live) // MANY:
            change = [0] * (len(self.live) + 1)
            for lower, upper, size in self.changes:
                change[lower] += size
                change[upper] -= size
            self.live += np.cumsum(np.array(change[:-1], np.int64))
        else:
            for lower, upper, size in self.changes:
                self.live[lower:upper] += size
        self.changes.clear()
        return self.live
