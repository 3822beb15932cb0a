# SPDX-License-Identifier: Apache-2.0
"""Where each block of a step lies in an arena."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .watched import Int64s, StreamWait, sequence_hash

ALIGNMENT = 512
"""Bytes: of offsets and rounded sizes. PyTorch's blocks and CuPy's have it, too, so that what depends on a pointer's alignment, such as
cuDNN's choice of an engine, stays as it is."""

NATIVE = -1
"""The offset of a block that has no place in the arena: the framework's own allocator serves it."""


@dataclass(frozen=True, eq=False)
class ReplayPlan:
    """Addresses for the requests of every step that asks as the watched one did. Columns of one length; sizes in bytes."""

    nbytes: Int64s
    """As asked for."""
    streams: Int64s
    threads: Int64s
    """Classes, as in `WatchedStep`."""
    freed: Int64s
    """When the block was free, as in `WatchedStep`."""
    offsets: Int64s
    """From the arena's start, multiples of `alignment`; NATIVE for what the framework's allocator serves."""
    first_pred: Int64s
    """n + 1 positions in `preds`: those from `first_pred[i]` to `first_pred[i + 1]` are of block i."""
    preds: Int64s
    """Other blocks that held part of a block's bytes last before it, ascending: one of a smaller number in the same step, one of a
    greater number in the step before."""
    arena_bytes: int
    lower_bound: int
    """Bytes of the largest set of planned blocks live at one time: no arena is smaller."""
    solver: str
    seconds: float
    """Of planning, with the checks."""
    alignment: int = ALIGNMENT
    torch_version: str = ""
    """Of the framework that asked; empty if it is not known."""
    device_kind: str = ""
    """Of the device, such as `NVIDIA H200`; empty if it is not known."""
    waits: tuple[StreamWait, ...] = ()
    """Of the watched step, on which blocks of several streams in the same bytes count."""

    def __len__(self) -> int:
        return len(self.nbytes)

    @property
    def planned(self) -> npt.NDArray[np.bool_]:
        """Blocks with a place in the arena."""
        return np.asarray(self.offsets != NATIVE)

    @property
    def cyclic(self) -> npt.NDArray[np.bool_]:
        """Planned blocks that are live when a step ends, and freed in the next."""
        return np.asarray(self.planned & (self.freed > len(self)))

    @property
    def sizes(self) -> Int64s:
        """Bytes, rounded up to the alignment."""
        return np.asarray(-(-self.nbytes // self.alignment) * self.alignment, np.int64)

    @property
    def arena_from(self) -> int:
        """Requests of a step after which all blocks of the step before are free."""
        last = int(self.freed[self.cyclic].max(initial=len(self))) - len(self)
        return int(np.count_nonzero(self.nbytes[:last]))

    @property
    def sequence_hash(self) -> str:
        """Of bytes and streams, as that of the watched step."""
        return sequence_hash(self.nbytes, self.streams)

    @property
    def gap_percent(self) -> float:
        """How far the arena is above the lower bound."""
        return 100 * (self.arena_bytes - self.lower_bound) / self.lower_bound if self.lower_bound else 0.0

    @property
    def native_bytes(self) -> int:
        """Rounded bytes of the blocks without a place."""
        return int(self.sizes[~self.planned].sum())
