# SPDX-License-Identifier: Apache-2.0
"""What a planned arena would reserve for a job's events: every block at an address of its own, known beforehand."""

from __future__ import annotations

import numpy as np

from memc.solvers.placement import BufferColumns, Problem, solve

from .events import Events

ALIGNMENT = 512
"""Bytes: what PyTorch's blocks have."""


def planned_arena(events: Events) -> int:
    """Bytes of an arena that holds every block while it is in use, by best fit."""
    made, freed = events.makes, events.frees
    sizes = -(-events.sizes() // ALIGNMENT) * ALIGNMENT
    lowers = np.zeros(len(sizes), np.int64)
    uppers = np.full(len(sizes), len(events), np.int64)
    lowers[events.blocks[made]] = np.flatnonzero(made)
    uppers[events.blocks[freed]] = np.flatnonzero(freed)
    buffers = BufferColumns(sizes, lowers, uppers, np.full(len(sizes), -1, np.int64))
    return solve(Problem(buffers, alignment=ALIGNMENT), "best-fit").peak
