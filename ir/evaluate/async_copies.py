# SPDX-License-Identifier: Apache-2.0
"""Copies between spaces in the poisoned buffers: each at a time that its start and its done allow, but that ops rarely give it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Union

import numpy as np

from ..core import Array, Value

Times = Union[Literal["start", "done"], int]
"""When copies run: at once when they start, as late as their done allows, or in pieces at times that a seed decides."""


@dataclass
class Moving:
    """A copy that has begun and is not over."""

    lane: str
    source: Array
    destination: Array
    """Bytes of the buffers."""
    moved: int = 0
    """Bytes that are there already, from the first on."""

    def move(self, nbytes: int) -> None:
        """Copy the next bytes, as they are now."""
        end = min(self.moved + nbytes, self.source.size)
        self.destination[self.moved : end] = self.source[self.moved : end]
        self.moved = end

    @property
    def is_over(self) -> bool:
        return self.moved == self.source.size


class Lanes:
    """The copies of one run. Those of a lane run in the sequence in which they started."""

    def __init__(self, times: Times, poison: int) -> None:
        self.times = times
        self.poison = poison
        self.random = None if isinstance(times, str) else np.random.default_rng(times)
        self.moving: dict[Value, Moving] = {}
        """By pending value, in the sequence of the starts."""

    def start(self, pending: Value, lane: str, source: Array, destination: Array) -> None:
        """Begin a copy, whose destination may be in any state from here on."""
        destination[:] = self.poison
        self.moving[pending] = Moving(lane, source, destination)
        if self.times == "start":
            self.finish(pending)

    def finish(self, pending: Value) -> None:
        """End a copy, and before it those of its lane that started before."""
        last = self.moving.get(pending)
        if last is None:
            return
        for other, copy in list(self.moving.items()):
            if copy.lane == last.lane:
                copy.move(copy.source.size)
                del self.moving[other]
            if copy is last:
                return

    def advance(self) -> None:
        """Let time pass: some lanes move some bytes."""
        if self.random is None:
            return
        for lane in {copy.lane: None for copy in self.moving.values()}:
            while self.random.random() < 0.5:
                copy = next((copy for copy in self.moving.values() if copy.lane == lane and not copy.is_over), None)
                if copy is None:
                    break
                copy.move(int(self.random.integers(1, copy.source.size + 1)))
