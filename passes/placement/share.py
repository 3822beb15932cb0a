# SPDX-License-Identifier: Apache-2.0
"""share: storages with disjoint lifetimes use one buffer (Chen et al. 2016, section 3, figure 2).

Ops are met in execution order. A storage gets a tag when it becomes live and hands it back when it dies, and the next
one takes a recycled tag if there is any. A tag is a space `buffer.N`, as large as its largest storage, and
`assign-addresses{solver=sequential}` lays the buffers out one after another.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Optional

from memc.ir.checked_options import Alignment
from memc.ir.core import Function, Placement
from memc.ir.liveness import ALIGNMENT, Lifetime, lifetimes
from memc.ir.module import Module
from memc.ir.sizes import align
from memc.ir.spaces import BUFFER
from memc.passes.base import Pass, alignment_of
from memc.passes.placement.in_place import alias_copies

Strategy = Literal["color", "equal-size"]


def color(lives: Sequence[Lifetime], strategy: Strategy = "color", alignment: int = ALIGNMENT) -> list[int]:
    """A buffer number for each storage, such that no two with overlapping lifetimes get the same.

    `lives` is sorted by `lower`. `color` takes the smallest free buffer that is large enough, else enlarges the
    largest free one; `equal-size` takes only a buffer of exactly the size. Linear but for the sorted free list.
    """
    sizes: list[int] = []
    free: list[tuple[int, int]] = []
    """Size in bytes and number of the buffers nobody uses, ascending."""
    ends: dict[int, list[int]] = {}
    """Buffers by the time step from which they are free."""
    numbers: list[int] = []
    step = 0
    for life in lives:
        while step <= life.lower:
            for number in ends.pop(step, ()):
                insort(free, (sizes[number], number))
            step += 1
        size = align(life.nbytes, alignment)
        at = bisect_left(free, (size, -1))
        fits = at < len(free) and (strategy == "color" or free[at][0] == size)
        if fits:
            number = free.pop(at)[1]
        elif free and strategy == "color":
            number = free.pop()[1]
            sizes[number] = size
        else:
            number = len(sizes)
            sizes.append(size)
        ends.setdefault(life.upper, []).append(number)
        numbers.append(number)
    return numbers


def share(function: Function, strategy: Strategy = "color", alignment: int = ALIGNMENT) -> None:
    """Place every arena storage at the start of a space `buffer.N`."""
    alias_copies(function)
    lives = lifetimes(function)
    for life, number in zip(lives, color(lives, strategy, alignment)):
        life.root.placement = Placement(f"{BUFFER}{number}", 0)


@dataclass(frozen=True)
class Share(Pass):
    """Storage sharing with a free list. Leaves a function alone whose values are placed already."""

    name: ClassVar[str] = "share"
    strategy: Strategy = "color"
    alignment: Optional[Alignment] = None
    """Bytes; sizes are rounded up to it."""

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if all(v.placement is None for v in function.values()):
                share(function, self.strategy, alignment_of(self.alignment, module))
