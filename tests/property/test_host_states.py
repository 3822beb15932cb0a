# SPDX-License-Identifier: Apache-2.0
"""Random steps whose states are put on the host: plans are right, give the bits of resident states, and are refused when broken."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from memc.ir.copies import host_params
from memc.ir.core import Array
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager

from .races import Definition
from .test_copies import Mutants, is_refused, same

PLACED = "in-place,assign-addresses"

LINKS = ("memory", "h200", "titanx", "gh200")


def step(seed: int) -> Module:
    """A chain of ops that read weights, and updates of these and their momenta in a random order behind what they need."""
    rng = random.Random(seed)
    count, size = rng.randint(1, 5), rng.choice((2, 3, 16, 40))
    vector = f"f32[{size}]"
    lines: list[tuple[str, set[str], str]] = []
    """Each result, what must be there before, and the op."""
    for n in range(count):
        before = f"h{n - 1}" if n else "x"
        lines.append((f"t{n}", {before}, f"mul(%{before}, %w{n}) : {vector}"))
        lines.append((f"h{n}", {f"t{n}"}, f"{rng.choice(('tanh', 'neg', 'sin'))}(%t{n}) : {vector}"))
    for n in range(count):
        late = f"h{rng.randrange(n, count)}"
        lines.append((f"g{n}", {late, f"h{n}"}, f"sub(%{late}, %h{n}) : {vector}"))
        lines.append((f"m{n}.sum", {f"g{n}"}, f"add(%m{n}, %g{n}) : {vector}"))
        lines.append((f"m{n}.new", {f"m{n}.sum"}, f"assign(%m{n}, %m{n}.sum) : {vector}"))
        lines.append((f"w{n}.moved", {f"m{n}.new"}, f"sub(%w{n}, %m{n}.new) : {vector}"))
        lines.append((f"w{n}.new", {f"w{n}.moved", f"t{n}"}, f"assign(%w{n}, %w{n}.moved) : {vector}"))
    known, text = {"x"}, []
    while lines:
        ready = [line for line in lines if line[1] <= known]
        line = rng.choice(ready[:3])
        lines.remove(line)
        known.add(line[0])
        text.append(f"  %{line[0]} = {line[2]}")
    states = [f"{kind}{n}" for n in range(count) for kind in "wm"]
    params = ", ".join([f"%x: {vector} {{role = input}}", *(f"%{s}: {vector} {{role = state}}" for s in states)])
    kinds = ", ".join([f'{vector} {{name = "y"}}', *(f'{vector} {{name = "{s}"}}' for s in states)])
    returns = ", ".join([f"%h{count - 1}", *(f"%{s}.new" for s in states)])
    module = parse("\n".join([f"func @main({params}) -> ({kinds}) {{", *text, f"  return {returns}", "}"]))
    data = np.random.default_rng(seed)
    module.weights.update((s, data.standard_normal(size).astype(np.float32)) for s in states)
    return module


def inputs_of(module: Module, seed: int) -> dict[str, Array]:
    shape = module.main.params[0].type.shape
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def on_host(seed: int, plan: str = PLACED) -> Module:
    module = step(seed)
    passes = f"host-states{{least-copy=1 link={LINKS[seed % 4]}}},{plan}"
    PassManager.parse(passes).run(module)
    return module


@pytest.mark.parametrize("plan", [PLACED, f"{PLACED},group-copies", "assign-addresses{solver=none}"])
def test_plans_give_the_bits_of_resident_states(plan: str) -> None:
    moved = 0
    for seed in range(80):
        module = on_host(seed, plan)
        inputs = inputs_of(module, seed)
        expected = evaluate(step(seed), inputs)
        moved += len(host_params(module.main))
        assert {state.name[0] for state in host_params(module.main)} == {"m"}  # Other ops read the weights.
        verify(module)
        check_plan(module, 64)
        check_copy_races(module)
        same(evaluate(module, inputs), expected)
        for times in ("start", "done", seed, seed + 1):
            same(evaluate_in_arena(module, inputs, copies=times), expected)
        again = parse(str(module))
        assert str(again) == str(module)
    assert moved > 100


def test_the_arena_has_at_most_room_for_one_update_more() -> None:
    for seed in range(80):
        before = step(seed)
        PassManager.parse(PLACED).run(before)
        nbytes = -(-before.main.params[1].type.nbytes // 64) * 64
        assert arena_bytes(on_host(seed).main) <= arena_bytes(before.main) + 2 * nbytes


class StateMutants(Mutants):
    """As `Mutants`, also where a done is returned; and a window that is another's while it is written back."""

    def all(self) -> Iterator[str]:
        returns = list(self.function.returns)
        for name in super().all():
            yield name
            self.function.returns = list(returns)

    def dropped_done(self) -> bool:
        before = list(self.function.ops)
        super().dropped_done()
        (done,) = [op for op in before if op not in self.function.ops]
        self.function.returns = [done.operands[0] if v is done.result else v for v in self.function.returns]
        return True

    def shifted_offset(self) -> bool:
        windows = [op.result for op in self.function.ops if op.name == "prefetch_start"]
        if len(windows) < 2:
            return super().shifted_offset()
        kept, moved = self.rng.sample(windows, 2)
        if kept.placement == moved.placement:
            return super().shifted_offset()
        moved.placement = kept.placement
        return True


def test_mutants_are_refused_or_harmless() -> None:
    """The checker says of each mutant exactly what the definition says."""
    refused: Counter[str] = Counter()
    made: Counter[str] = Counter()
    for seed in range(150):
        module = on_host(seed)
        assert not is_refused(module) and not Definition(module.main).is_bad(), seed
        for name in StateMutants(module, random.Random(seed)).all():
            made[name] += 1
            bad = Definition(module.main).is_bad()
            assert is_refused(module) == bad, f"seed {seed}, {name}"
            refused[name] += bad
    assert set(made) == {"dropped done", "moved done", "swapped starts", "smaller slot", "shifted offset"}
    for name, number in made.items():
        assert refused[name] > number // 8, (name, number, refused[name])
