# SPDX-License-Identifier: Apache-2.0
"""Which blocks held a block's bytes before it."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from .watched import Int64s


class Holders:
    """Who held each byte of an arena last: intervals in order of address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._blocks: list[int] = []

    def replace(self, start: int, end: int, block: int) -> list[int]:
        """The holders of [start, end) so far, which has `block` from now on."""
        low = bisect_right(self._starts, start) - 1
        low += low < 0 or self._ends[low] <= start
        high = low
        while high < len(self._starts) and self._starts[high] < end:
            high += 1
        found = self._blocks[low:high]
        starts, ends, blocks = [start], [end], [block]
        if found and self._starts[low] < start:
            starts.insert(0, self._starts[low])
            ends.insert(0, start)
            blocks.insert(0, found[0])
        if found and self._ends[high - 1] > end:
            starts.append(end)
            ends.append(self._ends[high - 1])
            blocks.append(found[-1])
        self._starts[low:high] = starts
        self._ends[low:high] = ends
        self._blocks[low:high] = blocks
        return found


def predecessors(offsets: Int64s, sizes: Int64s) -> tuple[Int64s, Int64s]:
    """By block, in the order of requests: the others that held part of its bytes last before it, where step follows step.

    Returns where each block's begin (n + 1 positions) and all of them, ascending for each block. Blocks with a negative offset
    have no bytes. The block's own bytes of the step before are its own affair: it is no predecessor of itself.
    """
    holders = Holders()
    rows = list(zip(offsets.tolist(), (offsets + sizes).tolist()))
    found: list[list[int]] = [[] for _ in rows]
    for last in (False, True):  # The second step sees what the first has left.
        for block, (start, end) in enumerate(rows):
            if start >= 0:
                before = holders.replace(start, end, block)
                if last:
                    found[block] = sorted({other for other in before if other != block})
    first = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(each) for each in found], out=first[1:])
    return first, np.array([other for each in found for other in each], np.int64)
