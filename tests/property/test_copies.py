# SPDX-License-Identifier: Apache-2.0
"""Random copies between spaces: plans of functions with them are right, and give the bits of those without."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count as count_from

import numpy as np
import pytest

from memc.ir.core import Array
from memc.ir.errors import CheckError, InvalidError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.evaluate.async_copies import Times
from memc.ir.liveness import lifetimes, lower_bound, space_bytes
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager

from .copies import insert_copies
from .graphs import SeededGraph, fill, inputs_of
from .races import Definition

MUTATED = 1000
"""Plans that are broken in several ways each."""

PLANS = (
    "in-place,assign-addresses",
    "in-place,assign-addresses{solver=best-fit}",
    "share,assign-addresses{solver=sequential}",
    "assign-addresses{solver=none}",
)


def with_copies(seed: int) -> tuple[Module, dict[str, Array], dict[str, Array], int]:
    """A random module with copies, inputs for it, what it returned without them, and how many there are."""
    module = fill(SeededGraph(seed), 16)
    PassManager.parse("materialize-returns,decompose").run(module)
    inputs = inputs_of(module, seed)
    expected = evaluate(module, inputs)
    return module, inputs, expected, insert_copies(module, seed)


def same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("plan", PLANS)
def test_plans_give_the_bits_of_the_function_without_copies(plan: str) -> None:
    total = 0
    for seed in range(60):
        module, inputs, expected, count = with_copies(seed)
        total += count
        same(evaluate(module, inputs), expected)
        check_copy_races(module)  # Each value has bytes of its own.
        PassManager.parse(plan).run(module)
        check_plan(module, 64)
        for times in ("start", "done", seed, seed + 1):
            same(evaluate_in_arena(module, inputs, copies=times), expected)
        again = parse(str(module))
        assert str(again) == str(module)
        bound = lower_bound(lifetimes(module.main, "host"))
        assert bound <= space_bytes(module.main, "host") and (bound > 0) == (count > 0)
    assert total > 100


def test_levels_keep_copies() -> None:
    from memc.passes.pipelines import pipeline

    for seed in range(20):
        for level in (0, 1, 2):
            module, inputs, expected, count = with_copies(seed)
            starts = [op.name for op in module.main.ops if op.name.endswith("_start")]
            PassManager.parse(pipeline(level)).run(module)
            assert [op.name for op in module.main.ops if op.name.endswith("_start")] == starts
            for name, value in evaluate_in_arena(module, inputs).items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)


def is_refused(module: Module) -> bool:
    try:
        check_copy_races(module)
    except CheckError as error:
        assert str(error).startswith("bad plan: @main, ")
        return True
    return False


def test_what_is_refused_shows_in_the_results() -> None:
    """Most mutants that the checker refuses give other bits at one time or another; those that both checkers accept never do."""
    seen = refused = accepted = 0
    for seed in range(150):
        module, count = planned(seed)
        inputs = inputs_of(module, seed)
        expected = evaluate(module, inputs)
        for kind in Mutants(module, random.Random(seed)).all() if count else ():
            found = [results_at(module, inputs, times) for times in ("start", "done", 1, 2)]
            differs = any(
                run is None or any(run[n].tobytes() != v.tobytes() for n, v in expected.items()) for run in found
            )
            if is_refused(module):
                refused += 1
                seen += differs
            elif keeps_plan(module):
                accepted += 1
                assert not differs, (seed, kind)
    assert accepted > 50 and refused > 100 and seen > refused // 2, (accepted, refused, seen)


def results_at(module: Module, inputs: dict[str, Array], times: Times) -> dict[str, Array] | None:
    """The results with copies at these times; None where an op fails on what it finds."""
    try:
        return evaluate_in_arena(module, inputs, copies=times, poison=0x7B)
    except (CheckError, InvalidError):
        return None


def keeps_plan(module: Module) -> bool:
    try:
        verify(module)
        check_plan(module)
    except (CheckError, InvalidError):
        return False
    return True


class Mutants:
    """Ways to break the plan of a module, each taken back afterwards."""

    def __init__(self, module: Module, rng: random.Random) -> None:
        self.module, self.function, self.rng = module, module.main, rng

    def all(self) -> Iterator[str]:
        """Make one mutant after another, and name each."""
        function = self.function
        for name in ("dropped done", "moved done", "swapped starts", "smaller slot", "shifted offset"):
            ops = [(op, list(op.operands)) for op in function.ops]
            places = [(value, value.placement) for value in function.values()]
            if getattr(self, name.replace(" ", "_"))():
                yield name
            function.ops = [op for op, _ in ops]
            for op, operands in ops:
                op.operands = operands
            for value, place in places:
                value.placement = place

    def dropped_done(self) -> bool:
        done = self.rng.choice([op for op in self.function.ops if op.name.endswith("_done")])
        self.function.ops.remove(done)
        for op in self.function.ops:
            op.operands = [done.operands[0] if v is done.results[0] else v for v in op.operands]
        return True

    def moved_done(self) -> bool:
        """A done that comes later, behind readers or behind a reuse of its source's bytes."""
        ops = self.function.ops
        done = self.rng.choice([op for op in ops if op.name.endswith("_done")])
        at = ops.index(done)
        ops.remove(done)
        ops.insert(self.rng.randint(at, min(len(ops), at + 6)), done)
        return ops.index(done) != at

    def swapped_starts(self) -> bool:
        ops = self.function.ops
        starts = [index for index, op in enumerate(ops) if op.name.endswith("_start")]
        if len(starts) < 2:
            return False
        a, b = self.rng.sample(starts, 2)
        ops[a], ops[b] = ops[b], ops[a]
        return True

    def smaller_slot(self) -> bool:
        """A storage in `host` that begins within another one."""
        roots = [
            v for v in self.function.values() if v.placement is not None and v.placement.space == "host" and not v.alias
        ]
        if len(roots) < 2:
            return False
        kept, moved = self.rng.sample(roots, 2)
        assert kept.placement is not None
        moved.placement = replace(kept.placement, offset=kept.placement.offset + self.rng.randrange(kept.type.nbytes))
        return True

    def shifted_offset(self) -> bool:
        roots = [v for v in self.function.values() if v.placement is not None and not v.alias and v.type.nbytes]
        root = self.rng.choice(roots)
        assert root.placement is not None
        offset = max(0, root.placement.offset + self.rng.choice((-128, -64, -4, 4, 64, 128)))
        root.placement = replace(root.placement, offset=offset)
        return True


def planned(seed: int, ops: int = 9) -> tuple[Module, int]:
    """A random module with copies and addresses, and how many copies."""
    module = fill(SeededGraph(seed), ops)
    PassManager.parse("materialize-returns,decompose").run(module)
    count = insert_copies(module, seed, 0.8)
    solver = ("best-fit", "auto")[seed % 2]
    PassManager.parse(f"in-place,assign-addresses{{solver={solver}}}").run(module)
    return module, count


def test_mutants_are_refused_or_harmless() -> None:
    """The checker says of each mutant exactly what the definition says."""
    refused: Counter[str] = Counter()
    made: Counter[str] = Counter()
    plans = 0
    for seed in count_from(0):
        if plans == MUTATED:
            break
        module, count = planned(seed)
        if not count:
            continue
        plans += 1
        assert not is_refused(module) and not Definition(module.main).is_bad(), seed
        for name in Mutants(module, random.Random(seed)).all():
            made[name] += 1
            bad = Definition(module.main).is_bad()
            assert is_refused(module) == bad, f"seed {seed}, {name}"
            refused[name] += bad
    for name, number in made.items():
        assert refused[name] > number // 8, (name, number, refused[name])
