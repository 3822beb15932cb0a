# SPDX-License-Identifier: Apache-2.0
"""What lies on some bytes, against a look at all of them."""

from __future__ import annotations

import random

import pytest

from memc.ir.interval_index import FEW, IntervalIndex


@pytest.mark.parametrize("most", [1, 3, 40, 1000])
@pytest.mark.parametrize("count", [FEW - 1, FEW, FEW + 1, 200])
def test_against_all_items(most: int, count: int) -> None:
    rng = random.Random(most * 1000 + count)
    index: IntervalIndex[int] = IntervalIndex()
    known: dict[int, tuple[int, int]] = {}
    for number in range(count):
        low = rng.randrange(1000)
        high = low + rng.randrange(most)
        index.add(low, high, -number)
        known[number] = (low, high)
        if rng.random() < 0.2:
            gone = rng.choice(list(known))
            index.remove(gone)
            del known[gone]
        low = rng.randrange(1000)
        high = low + rng.randrange(most)
        expected = [n for n, (a, b) in known.items() if max(a, low) < min(b, high)]
        assert index.over(low, high) == expected
        assert set(expected) <= set(index.near(low, high))
        assert len(index) == len(known)
    assert {number: item for number, (_, _, item) in index.items.items()} == {number: -number for number in known}


def test_few_are_met() -> None:
    """Of ranges side by side only those next to the one asked for are met, however many there are."""
    index: IntervalIndex[int] = IntervalIndex()
    for number in range(5000):
        index.add(64 * number, 64 * number + 64, number)
    assert index.over(64_000, 64_128) == [1000, 1001]
    assert len(list(index.near(64_000, 64_128))) <= 4
