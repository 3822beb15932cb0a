# SPDX-License-Identifier: Apache-2.0
"""Where values lie, byte by byte: whether two of them have bytes in common."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from memc.ir.core import Value
from memc.ir.spaces import is_shared_buffer


@dataclass(frozen=True)
class ByteRange:
    """Bytes [begin, end) of a storage."""

    storage: Hashable
    """Equal for ranges of one storage: no two storages have bytes in common."""
    begin: int
    end: int

    @staticmethod
    def of(value: Value) -> ByteRange:
        """Bytes of a space, or of the root's own storage."""
        root = value.root
        placed = None if root.placement is None or is_shared_buffer(root.placement.space) else root.placement
        begin = value.offset_in_root + (placed.offset if placed else 0)
        return ByteRange(placed.space if placed else root, begin, begin + value.type.nbytes)

    def meets(self, other: ByteRange) -> bool:
        return self.storage == other.storage and self.begin < other.end and other.begin < self.end
