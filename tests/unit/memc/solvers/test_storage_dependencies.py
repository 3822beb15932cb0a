# SPDX-License-Identifier: Apache-2.0
"""Dependencies from accesses, beside the definition pair by pair."""

from __future__ import annotations

import random

import pytest

from memc.solvers.storage_dependencies import WHOLE, Accesses, Part, dependencies


def meet(a: tuple[int, Part], b: tuple[int, Part]) -> bool:
    """Whether two accesses share a byte."""
    return a[0] == b[0] and bool(set(range(*a[1])) & set(range(*b[1])))


def must_follow(ops: list[Accesses], early: int, late: int) -> bool:
    """By definition: what it takes was made there, or one of the two writes bytes that the other accesses."""
    a, b = ops[early], ops[late]
    conflicts = [(x, y) for x in a.writes for y in (*b.reads, *b.writes)] + [(x, y) for x in a.reads for y in b.writes]
    return early in b.after or (a.effects and b.effects) or any(meet(x, y) for x, y in conflicts)


def draw(rng: random.Random) -> list[Accesses]:
    def accesses() -> list[tuple[int, Part]]:
        found = []
        for _ in range(rng.randint(0, 2)):
            begin = rng.randint(0, 5)
            found.append((rng.randint(0, 2), (begin, rng.randint(begin, 6))))
        return found

    return [
        Accesses(rng.sample(range(index), min(index, rng.randint(0, 1))), accesses(), accesses(), rng.random() < 0.1)
        for index in range(rng.randint(1, 14))
    ]


@pytest.mark.parametrize("seed", range(100))
def test_dependencies_have_the_closure_of_their_definition(seed: int) -> None:
    ops = draw(random.Random(seed))
    rows = dependencies(ops)
    found: list[set[int]] = []
    expected: list[set[int]] = []
    for late in range(len(ops)):
        assert len(set(rows[late])) == len(rows[late])
        direct = [early for early in range(late) if must_follow(ops, early, late)]
        assert set(rows[late]) <= set(direct)
        found.append(set(rows[late]).union(*(found[op] for op in rows[late])))
        expected.append(set(direct).union(*(expected[op] for op in direct)))
    assert found == expected


def test_a_write_of_the_whole_hides_what_was_before_it() -> None:
    """Dependencies of a storage that is written n times grow with n, not with its square."""
    ops = [Accesses([], [("s", WHOLE)], [("s", WHOLE)]) for _ in range(50)]
    assert dependencies(ops) == [[], *([index] for index in range(49))]
