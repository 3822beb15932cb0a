# SPDX-License-Identifier: Apache-2.0
"""The clock of ops and two lanes of copies, by the rules of `cpp/solvers/offload/lane_clock.h`."""

from __future__ import annotations

from dataclasses import dataclass, field

from memc.solvers.offload import FULL_SPEED, Lane, Lanes


@dataclass
class _Line:
    lane: Lane
    left: list[int] = field(default_factory=list)
    """Of each copy: picoseconds at full speed, times `FULL_SPEED`."""
    ended: int = 0

    @property
    def busy(self) -> bool:
        return self.ended < len(self.left)


class LaneClock:
    """Copies in two lanes; those of a lane run in the order in which they are issued."""

    def __init__(self, lanes: Lanes) -> None:
        self.now = 0
        self.out, self.back = _Line(lanes.out), _Line(lanes.back)

    def issue_out(self, nbytes: int) -> int:
        """Add a copy out. Returns its number."""
        return _issue(self.out, nbytes)

    def issue_back(self, nbytes: int) -> int:
        """Add a copy in. Returns its number."""
        return _issue(self.back, nbytes)

    def advance(self, picoseconds: int) -> None:
        """While an op runs."""
        end = self.now + picoseconds
        while self.now < end:
            self._step(end - self.now)

    def await_out(self, copy: int) -> None:
        """To the end of a copy out."""
        while self.out.ended <= copy:
            self._step(None)

    def await_back(self, copy: int) -> None:
        """To the end of a copy in."""
        while self.back.ended <= copy:
            self._step(None)

    def _step(self, most: int | None) -> None:
        """Up to the next end of a copy, and at most so far."""
        lines = [line for line in (self.out, self.back) if line.busy]
        speeds = [line.lane.shared if len(lines) == 2 else FULL_SPEED for line in lines]
        steps = [-(-line.left[line.ended] // speed) for line, speed in zip(lines, speeds)]
        step = min(steps if most is None else [*steps, most])
        self.now += step
        for line, speed in zip(lines, speeds):
            line.left[line.ended] -= step * speed
            if line.left[line.ended] <= 0:
                line.ended += 1


def _issue(line: _Line, nbytes: int) -> int:
    line.left.append(line.lane.duration(nbytes) * FULL_SPEED)
    return len(line.left) - 1
