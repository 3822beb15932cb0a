# SPDX-License-Identifier: Apache-2.0
"""The clock of ops and two lanes of copies, by the rules of `cpp/solvers/offload/lane_clock.h`. Times are picoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memc.solvers.offload import FULL_SPEED, Lane, Lanes

Way = Literal["out", "in"]

WAYS: tuple[Way, Way] = ("out", "in")


@dataclass
class Transfer:
    """A copy in a lane."""

    left: int
    """Picoseconds that it still takes at full speed, times `FULL_SPEED`."""
    begin: int = -1
    end: int = -1
    """When its bytes begin to move, and when they are there; -1 before."""


class LaneClock:
    """Copies in two lanes; those of a lane run in the order in which they are issued."""

    def __init__(self, lanes: Lanes) -> None:
        self.now = 0
        self.lanes: dict[Way, Lane] = {"out": lanes.out, "in": lanes.back}
        self.queues: dict[Way, list[Transfer]] = {way: [] for way in WAYS}
        self.ended: dict[Way, int] = dict.fromkeys(WAYS, 0)

    def issue(self, way: Way, nbytes: int, forked: bool = False) -> int:
        """Add a copy at the end of a lane, once it is forked, unless the lane is since the last op. Returns its number in the lane."""
        if not forked:
            self._advance(self.now + self.lanes[way].fork)
        self.queues[way].append(Transfer(self.lanes[way].duration(nbytes) * FULL_SPEED))
        return len(self.queues[way]) - 1

    def run(self, cost: int) -> None:
        """While an op runs that takes `cost` beside idle lanes."""
        left = cost * FULL_SPEED
        while left > 0:
            before = self.now
            pace = FULL_SPEED - sum(self.lanes[way].drag for way in self._busy())
            self._step(-(-left // pace))
            left -= (self.now - before) * pace

    def wait(self, way: Way, copy: int) -> None:
        """To the end of a copy, if that is later than now, and its join."""
        while self.ended[way] <= copy:
            self._step(None)
        self._advance(self.now + self.lanes[way].join)

    def _busy(self) -> list[Way]:
        return [way for way in WAYS if self.ended[way] < len(self.queues[way])]

    def _advance(self, time: int) -> None:
        while self.now < time:
            self._step(time - self.now)

    def _step(self, most: int | None) -> None:
        """Up to the next end of a copy, and at most so far."""
        busy = self._busy()
        moving = [self.queues[way][self.ended[way]] for way in busy]
        speeds = [self.lanes[way].shared if len(busy) == 2 else FULL_SPEED for way in busy]
        steps = [-(-copy.left // speed) for copy, speed in zip(moving, speeds)]
        step = min([*steps, *([] if most is None else [most])])
        for way, copy, speed in zip(busy, moving, speeds):
            copy.begin = self.now if copy.begin < 0 else copy.begin
            copy.left -= step * speed
            if copy.left <= 0:
                copy.end = self.now + step
                self.ended[way] += 1
        self.now += step
