# SPDX-License-Identifier: Apache-2.0
"""Minimum cuts against all cuts of small networks."""

from __future__ import annotations

import random
from itertools import product

import pytest

from memc.solvers.min_cut import UNCUT, sink_side


@pytest.mark.parametrize("seed", range(60))
def test_against_all_cuts(seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(2, 7)
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b and (a, b) != (0, 1)]
    edges = [(a, b, rng.choice([0, 1, 2, 5, UNCUT])) for a, b in rng.sample(pairs, rng.randint(0, len(pairs)))]
    edges.append((0, 1, 3))

    def cost(side: set[int]) -> int:
        return sum(capacity for a, b, capacity in edges if a not in side and b in side)

    sides = [{1, *(n + 2 for n, on in enumerate(chosen) if on)} for chosen in product((0, 1), repeat=nodes - 2)]
    least = min(map(cost, sides))
    found = sink_side(nodes, edges)
    if least < UNCUT:
        assert cost(found) == least
        assert all(found <= side for side in sides if cost(side) == least)  # The smallest of them.


def test_wrong_nodes() -> None:
    with pytest.raises(ValueError, match="among 3 nodes"):
        sink_side(3, [(0, 3, 1)])
