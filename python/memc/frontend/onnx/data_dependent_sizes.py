# SPDX-License-Identifier: Apache-2.0
"""Sizes that depend on data: values with room for so many elements along an axis, and a number beside them that says how many
of these are data."""

from __future__ import annotations

from dataclasses import dataclass, field

from memc.ir.core import Array, Value


@dataclass(frozen=True)
class Count:
    """How many elements along an axis are data. What lies behind them is padding, of any value."""

    value: Value
    """i64[], from 0 on."""
    most: int
    """The axis's extent."""


@dataclass(frozen=True)
class Numbers:
    """What is known at import of the elements of a tensor of integers from 0 on, each array of its shape."""

    low: Array
    """The least that each can be."""
    high: Array
    """The greatest."""
    symbols: Array
    """Which of `Sizes.symbols` each is; -1 for none."""


@dataclass
class Sizes:
    """What one import knows of them."""

    limit: int | None = None
    """The most that the user says there will be, of everything; None: as many as there can be."""
    of: dict[Value, dict[int, Count]] = field(default_factory=dict)
    """The axes of values that have a count."""
    checks: dict[Value, int] = field(default_factory=dict)
    """Counts that may exceed what there is room for, which is what they are given with: each run is to be checked."""

    nonzero: dict[Value, tuple[Value, Count]] = field(default_factory=dict)
    """What NonZero found in a value: it is asked again for each tensor that a mask selects from."""
    places: dict[Value, tuple[Value, Count]] = field(default_factory=dict)
    """Where masks are true: what one mask selects from several tensors has one count."""
    together: dict[tuple[tuple[Value | None, int], ...], tuple[Value, Count]] = field(default_factory=dict)
    """Where the data of joined parts is, by their counts and extents: tensors joined alike have the same count."""

    numbers: dict[Value, Numbers] = field(default_factory=dict)
    """Values that are made of counts."""
    symbols: list[Count] = field(default_factory=list)
    least: dict[tuple[Value, Value, int], Count] = field(default_factory=dict)
    """The lesser of two numbers, so that it is one count wherever it is needed."""
    candidates: Count | None = None
    """How many boxes a NonMaxSuppression chooses from; None: all."""

    def symbol(self, count: Count) -> int:
        """The number of a count among `symbols`."""
        if count not in self.symbols:
            self.symbols.append(count)
        return self.symbols.index(count)

    def room(self, most: int) -> int:
        """The extent for at most `most` elements."""
        return most if self.limit is None else min(most, self.limit)
