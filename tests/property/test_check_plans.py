# SPDX-License-Identifier: Apache-2.0
"""The native walk over a plan says of each plan, right or broken, what the checks with messages say."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from memc.ir.core import Placement
from memc.ir.errors import CheckError
from memc.ir.module import Module
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.passes.check_plans import check_whole_plan, holds
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline

from .graphs import SeededGraph, fill
from .test_copies import Mutants, planned


def is_right(module: Module, alignment: int) -> bool:
    try:
        check_copy_races(module)
        check_plan(module, alignment)
    except CheckError:
        return False
    return True


def test_of_plans_with_copies_and_their_mutants() -> None:
    """As the detector of races and the check of bytes together."""
    said: Counter[tuple[str, bool]] = Counter()
    for seed in range(250):
        module, count = planned(seed)
        assert holds(module, 64), seed
        for name in Mutants(module, random.Random(seed)).all() if count else ():
            right = is_right(module, 1)
            assert holds(module, 1) == right, (seed, name)
            said[name, right] += 1
    for name in ("dropped done", "moved done", "swapped starts", "smaller slot", "shifted offset"):
        assert said[name, False] > 20, said
    assert sum(count for (_, right), count in said.items() if right) > 50, said


@pytest.mark.parametrize("level", [0, 1, 2])
def test_of_plans_whose_storages_move(level: int) -> None:
    """Each storage of the arena at the place of another one, or 64 bytes beyond."""
    said: Counter[bool] = Counter()
    for seed in range(60):
        module = fill(SeededGraph(seed), 30)
        PassManager.parse(pipeline(level)).run(module)
        assert holds(module, module.target.alignment) == is_right(module, module.target.alignment), seed
        rng = random.Random(seed)
        roots = [v for v in module.main.values() if v.placement is not None and v.alias is None and v.type.nbytes]
        for _ in range(4 if roots else 0):
            root, other = rng.choice(roots), rng.choice(roots)
            assert root.placement is not None and other.placement is not None
            before = {v: v.placement for v in module.main.values()}
            at = other.placement.offset + rng.choice((0, 0, 64))
            for value in before:
                if value.root is root and value.placement is not None:
                    value.placement = Placement("arena", at + value.offset_in_root)
            right = is_right(module, 64)
            assert holds(module, 64) == right, (level, seed)
            said[right] += 1
            for value, place in before.items():
                value.placement = place
    assert said[False] > 15 and said[True] > 15, said


def test_messages_are_those_of_the_checks() -> None:
    module, _ = planned(3)
    with pytest.raises(CheckError, match="expected an address that is a multiple of 1048576"):
        check_whole_plan(module, 1 << 20)
