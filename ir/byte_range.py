# SPDX-License-Identifier: Apache-2.0
"""Where values lie, byte by byte: whether two of them have bytes in common."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from memc.ir.core import Value
from memc.ir.liveness import ARENA


@dataclass(frozen=True)
class ByteRange:
    """Bytes [begin, end) of a storage."""

    storage: Hashable
    """Equal for ranges of one storage: no two storages have bytes in common."""
    begin: int
    end: int

    @staticmethod
    def of(value: Value) -> ByteRange:
        """Bytes of the arena, or of the root's own storage."""
        root = value.root
        placed = root.placement if root.placement is not None and root.placement.space == ARENA else None
        begin = value.offset_in_root + (placed.offset if placed else 0)
        return ByteRange(ARENA if placed else root, begin, begin + value.type.nbytes)

    def meets(self, other: ByteRange) -> bool:
        return self.storage == other.storage and self.begin < other.end and other.begin < self.end
