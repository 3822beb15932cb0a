# SPDX-License-Identifier: Apache-2.0
"""Gaps in lifetimes: as text of a CSV file, and of blocks of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from memc.solvers.placement import Lives

_GAP = re.compile(r"([-+]?\d{1,19})-([-+]?\d{1,19})", re.ASCII)


def lives_of(text: str, lower: int, upper: int, last: int = 0) -> Lives:
    """The intervals of [lower, upper) outside the gaps of a field such as `3-7 9-11`; () if there is none.

    A gap is half-open, or ends `last` steps later than the text says. Raises ValueError with what was expected.
    """
    lives: list[tuple[int, int]] = []
    begin = lower
    for gap in text.split():
        found = _GAP.fullmatch(gap)
        if found is None:
            raise ValueError("expected gaps such as 3-7 9-11")
        first, after = int(found[1]), int(found[2]) + last
        if not begin < first < after < upper:
            raise ValueError(f"expected gaps in order within {lower} to {upper}, with live steps before and after each")
        lives.append((begin, first))
        begin = after
    return (*lives, (begin, upper)) if lives else ()


def gaps_text(lives: Lives) -> str:
    """What `lives_of` reads."""
    return " ".join(f"{lower}-{upper}" for (_, lower), (upper, _) in pairwise(lives))


def is_lives(lives: object, lower: int, upper: int) -> bool:
    """Whether these are ascending intervals with gaps between them, from `lower` to `upper`; or ()."""
    if not isinstance(lives, tuple):
        return False
    if not all(
        isinstance(pair, tuple) and len(pair) == 2 and all(type(time) is int for time in pair) for pair in lives
    ):
        return False
    times = [time for pair in lives for time in pair]
    return not lives or (times[0] == lower and times[-1] == upper and all(a < b for a, b in pairwise(times)))


def block_lives(members: Sequence[Lives]) -> Lives:
    """When a block is live: from its first tensor to its last, but in steps at which one has a gap and none is live.

    Each member is its intervals, one at least.
    """
    gaps = [(end, begin) for lives in members for (_, end), (begin, _) in pairwise(lives)]
    if not gaps:
        return ()
    alive = _merged([pair for lives in members for pair in lives])
    inside = [(max(a, end), min(b, begin)) for (_, end), (begin, _) in pairwise(alive) for a, b in gaps]
    empty = _merged(pair for pair in inside if pair[0] < pair[1])
    times = [alive[0][0], *(time for pair in empty for time in pair), alive[-1][1]]
    return tuple(zip(times[::2], times[1::2])) if empty else ()


def _merged(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of intervals, as few as possible."""
    merged: list[tuple[int, int]] = []
    for lower, upper in sorted(pairs):
        if merged and lower <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], upper))
        else:
            merged.append((lower, upper))
    return merged
