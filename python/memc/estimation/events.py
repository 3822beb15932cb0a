# SPDX-License-Identifier: Apache-2.0
"""Allocation events: what a job asks of a framework's allocator, in order. The common form of all sources of estimates."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class Kind(IntEnum):
    """What an event is; the numbers are those of `cpp/allocators/allocator.h`."""

    ALLOCATE = 0
    FREE = 1
    """At once, or when the streams that the block was used on have passed."""
    REQUEST_FREE = 2
    """The job gave the block back, which the device still uses until COMPLETE_FREE."""
    COMPLETE_FREE = 3
    RECORD_STREAM = 4
    SYNCHRONIZE = 5
    EMPTY_CACHE = 6
    RELEASE_POOL = 7


@dataclass(frozen=True)
class Origin:
    """Where in a job a request comes from. What is not known is empty, or -1."""

    op: str = ""
    module: str = ""
    phase: str = ""
    """Such as `forward`, `backward` or `optimizer`."""
    step: int = -1
    category: str = ""
    """What the block holds: `weights`, `gradients`, `optimizer`, `inputs`, `activations`, `temporaries` or `workspaces`."""

    def __str__(self) -> str:
        where = [self.module, self.phase, f"step {self.step}" if self.step >= 0 else ""]
        inside = ", ".join(filter(None, where))
        return f"{self.op or 'a request'} ({inside})" if inside else self.op or "a request"


@dataclass(frozen=True, eq=False)
class Events:
    """Columns of equal length, one row for each event. `EventList` makes them."""

    kinds: Int64s
    blocks: Int64s
    """Numbers of blocks, from 0; a block is allocated once."""
    nbytes: Int64s
    """As asked for, with ALLOCATE; 0 otherwise."""
    streams: Int64s
    pools: Int64s
    """Private pools, from 1; 0 for none."""
    origin_of: Int64s
    """Index in `origins`; -1 where none is known."""
    origins: tuple[Origin, ...] = ()

    def __len__(self) -> int:
        return len(self.kinds)

    def origin(self, event: int) -> Origin | None:
        """Where the event comes from, if that is known."""
        at = int(self.origin_of[event]) if 0 <= event < len(self) else -1
        return self.origins[at] if at >= 0 else None

    @property
    def makes(self) -> npt.NDArray[np.bool_]:
        """Whether each event is a request."""
        return np.asarray(self.kinds == Kind.ALLOCATE)

    @property
    def frees(self) -> npt.NDArray[np.bool_]:
        """Whether a block is free with each event."""
        return np.asarray((self.kinds == Kind.FREE) | (self.kinds == Kind.COMPLETE_FREE))

    def sizes(self) -> Int64s:
        """Bytes of each block, by its number."""
        made = self.makes
        sizes = np.zeros(int(self.blocks.max(initial=-1)) + 1, np.int64)
        sizes[self.blocks[made]] = self.nbytes[made]
        return sizes

    def live_after(self) -> Int64s:
        """Bytes that are asked for and not yet free, after each event."""
        freed = self.frees
        change = np.where(self.makes, self.nbytes, 0)
        change[freed] = -self.sizes()[self.blocks[freed]]
        return np.cumsum(change)


@dataclass
class EventList:
    """Collects events one by one."""

    _rows: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    _origins: dict[Origin, int] = field(default_factory=dict)
    _blocks: int = 0

    def __len__(self) -> int:
        return len(self._rows)

    def allocate(self, nbytes: int, stream: int = 0, pool: int = 0, origin: Origin | None = None) -> int:
        """The number of the new block."""
        block = self._blocks
        self._blocks += 1
        self._add(Kind.ALLOCATE, block, nbytes, stream, pool, origin)
        return block

    def origin(self, origin: Origin) -> int:
        """Its number, for `allocate_from`."""
        return self._origins.setdefault(origin, len(self._origins))

    def allocate_from(self, nbytes: int, origin: int) -> int:
        """The number of the new block, by that of where the request comes from."""
        block = self._blocks
        self._blocks += 1
        self._rows.append((Kind.ALLOCATE, block, nbytes, 0, 0, origin))
        return block

    def free(self, block: int, origin: Origin | None = None) -> None:
        """The block is given back, and free once no stream uses it."""
        self._add(Kind.FREE, block, origin=origin)

    def request_free(self, block: int) -> None:
        """The block is given back, and free with `complete_free`."""
        self._add(Kind.REQUEST_FREE, block)

    def complete_free(self, block: int) -> None:
        """What was given back is free."""
        self._add(Kind.COMPLETE_FREE, block)

    def record_stream(self, block: int, stream: int) -> None:
        """The block is used on another stream, too."""
        self._add(Kind.RECORD_STREAM, block, stream=stream)

    def synchronize(self, stream: int) -> None:
        """The device has finished what is on the stream so far."""
        self._add(Kind.SYNCHRONIZE, stream=stream)

    def empty_cache(self) -> None:
        """Cached memory goes back to the device."""
        self._add(Kind.EMPTY_CACHE)

    def release_pool(self, pool: int) -> None:
        """A private pool gets no more requests."""
        self._add(Kind.RELEASE_POOL, pool=pool)

    def _add(
        self,
        kind: Kind,
        block: int = 0,
        nbytes: int = 0,
        stream: int = 0,
        pool: int = 0,
        origin: Origin | None = None,
    ) -> None:
        at = -1 if origin is None else self._origins.setdefault(origin, len(self._origins))
        self._rows.append((kind, block, nbytes, stream, pool, at))

    def events(self) -> Events:
        """What was collected."""
        table: Any = np.array(self._rows, np.int64).reshape(-1, 6).T
        kinds, blocks, nbytes, streams, pools, origin_of = (np.ascontiguousarray(column) for column in table)
        return Events(kinds, blocks, nbytes, streams, pools, origin_of, tuple(self._origins))
