# SPDX-License-Identifier: Apache-2.0
"""Rules of options that their types do not say: ranges of numbers, what counts bytes, and choices that only the running program knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that an option takes. Bounds that are None do not count."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    """A bound that does not belong to the range itself; so is `below`."""
    below: float | None = None
    what: str | None = None
    """What the numbers are, for messages, such as `a number of bytes`."""

    def holds(self, value: Any) -> bool:
        """Whether the range has the number."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def said(self, value: Any) -> str:
        """What `what` does not say of the rule that `value` breaks."""
        low = "" if self.least is None else f"from {_number(self.least)}"
        low = low if self.above is None else f"above {_number(self.above)}"
        if self.below is not None:
            return f"{low} to below {_number(self.below)}".strip()
        if self.most is not None:
            return f"{low} to {_number(self.most)}".strip() if self.above is None else f"{low}, at most {self.most:g}"
        return f"{low} on" if self.above is None and low else low


@dataclasses.dataclass(frozen=True)
class PowerOfTwo:
    """Numbers of bytes that offsets can be multiples of."""

    most: int = 2**40
    what: ClassVar[str] = "a power of two of bytes"

    def holds(self, value: Any) -> bool:
        """Whether it is one."""
        return 1 <= value <= self.most and bool(value & (value - 1) == 0)

    def said(self, value: Any) -> str:
        """What `what` does not say of the rule that `value` breaks."""
        return f"up to 2**{self.most.bit_length() - 1}" if value > self.most else ""


@dataclasses.dataclass(frozen=True)
class InBytes:
    """Marks a number of bytes, which may be given as text, too: `4KiB`. So may what a `PowerOfTwo` is asked of."""


@dataclasses.dataclass(frozen=True)
class What:
    """What an option takes, for messages, where the type's own name does not say it."""

    what: str

    def holds(self, value: Any) -> bool:
        """Whatever the type takes."""
        return True

    def said(self, value: Any) -> str:
        """Nothing: `what` says all."""
        return ""


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Choices that only the running program knows."""

    names: Callable[[], Sequence[str]]


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
