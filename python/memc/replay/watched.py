# SPDX-License-Identifier: Apache-2.0
"""What an allocator was asked for in one step of a program, as a plan for the next steps is made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memc.ir.errors import InvalidError

Int64s = npt.NDArray[np.int64]

NEVER = -1
"""Where a block's free would stand: it was not seen to be freed."""

MOST_BYTES = 2**60


@dataclass(frozen=True)
class StreamWait:
    """An event on one stream for which another waits: what the first was given before is done when the second goes on.

    Moments are numbers of requests made before, as in `WatchedStep.freed`.
    """

    recorded: int
    source: int
    waited: int
    """Not before `recorded`."""
    target: int


@dataclass(frozen=True, eq=False)
class WatchedStep:
    """The requests of a step, in their order: columns of one length, n. Time is counted in requests, on which replay goes on, too.

    Streams are numbered by first appearance within the step, so that they are the same in every step whatever the device's
    numbers are. Raises InvalidError for columns of unequal lengths or values out of range.
    """

    nbytes: Int64s
    """As asked for, 0 to 2^60."""
    streams: Int64s
    """The class of the stream that asked."""
    threads: Int64s
    """The class of the thread that asked: 0 for the one that began the step, 1 for others."""
    freed: Int64s
    """How many requests of the step were made before the block's free: from i + 1 for request i. In the step after it, n and the
    number of that step's requests before the free; NEVER if it was live still when that step ended."""
    waits: tuple[StreamWait, ...] = ()
    """Between streams, in the order of `waited`."""

    def __post_init__(self) -> None:
        n = len(self.nbytes)
        for name in ("nbytes", "streams", "threads", "freed"):
            column = np.ascontiguousarray(getattr(self, name), np.int64)
            if column.shape != (n,):
                raise InvalidError(f"step: {name}: expected {n} values, one for each request, got {column.shape}")
            object.__setattr__(self, name, column)
        for name, most in (("nbytes", MOST_BYTES), ("streams", 2**31), ("threads", 2**31)):
            column = getattr(self, name)
            for at in np.flatnonzero((column < 0) | (column > most))[:1]:
                raise InvalidError(f"step: request {at}: {name}: expected 0 to {most}, got {column[at]}")
        for wait in self.waits:
            if not 0 <= wait.recorded <= wait.waited <= n:
                raise InvalidError(f"step: waits: expected moments from 0 to {n} with the event's first, got {wait}")
        early = (self.freed != NEVER) & ((self.freed <= np.arange(n)) | (self.freed > 2 * n))
        for at in np.flatnonzero(early)[:1]:
            raise InvalidError(f"step: request {at}: freed: expected {at + 1} to {2 * n}, or -1, got {self.freed[at]}")

    @staticmethod
    def of(rows: Sequence[tuple[int, int, int, int]], waits: Sequence[StreamWait] = ()) -> WatchedStep:
        """The step of rows (bytes, stream class, thread class, freed)."""
        table = np.array(rows, np.int64).reshape(-1, 4)
        return WatchedStep(table[:, 0], table[:, 1], table[:, 2], table[:, 3], tuple(waits))

    def __len__(self) -> int:
        return len(self.nbytes)

    @property
    def escaping(self) -> npt.NDArray[np.bool_]:
        """Blocks that live at the same request of the next step, for which one place in an arena does not do."""
        return np.asarray((self.freed == NEVER) | (self.freed > len(self) + np.arange(len(self))))

    @property
    def cyclic(self) -> npt.NDArray[np.bool_]:
        """Blocks that are live when the step ends, and freed in the next."""
        return np.asarray(~self.escaping & (self.freed > len(self)))

    @property
    def sequence_hash(self) -> str:
        """Of bytes and streams, in order: equal for two steps of one sequence."""
        return sequence_hash(self.nbytes, self.streams)

    def same_sequence(self, other: WatchedStep) -> bool:
        """Whether both asked for the same bytes on the same streams: two such steps in a row are *hot* (Sekiyama et al. 2018)."""
        return bool(np.array_equal(self.nbytes, other.nbytes) and np.array_equal(self.streams, other.streams))

    def merged(self, after: WatchedStep) -> WatchedStep:
        """The step with the later free of both for each block, where `after` is the next step, of the same sequence.

        What was not seen to be freed in `after` keeps its free if that was after this step's last request, and escapes otherwise.

        Raises InvalidError for steps that differ.
        """
        if not self.same_sequence(after):
            raise InvalidError("steps: expected two of the same sequence of requests, got two that differ")
        unknown = np.where(self.freed >= len(self), self.freed, NEVER)
        later = np.where(after.freed == NEVER, unknown, np.maximum(self.freed, after.freed))
        freed = np.where(self.freed == NEVER, NEVER, later)
        kept = tuple(wait for wait in self.waits if wait in after.waits)
        return WatchedStep(self.nbytes, self.streams, self.threads, freed, kept)


def sequence_hash(nbytes: Int64s, streams: Int64s) -> str:
    """Of requests in their order."""
    table = np.stack([nbytes, streams]).astype("<i8")
    return hashlib.sha256(table.tobytes()).hexdigest()[:32]
