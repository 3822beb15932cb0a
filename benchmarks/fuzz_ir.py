# SPDX-License-Identifier: Apache-2.0
"""IR text changed at random, through parser, verifier, passes and planning: prints the seed of each case that fails.

    python benchmarks/fuzz_ir.py --first 0 --count 2000 --save /tmp/ir

A case changes the text of a function of the golden tests, or of a random ONNX graph as the passes of a level leave it,
with or without its placements. Whatever is not accepted is refused in one line. What is accepted is printed and read
back to the same text, runs through passes and is planned at a level without breaking valid IR; if it is small and can be
executed, it is, plainly and in the poisoned arena, to the same bits. Every tenth text is changed byte by byte instead, and
goes through the command line. Exit code 1 if anything failed.
"""

from __future__ import annotations

import random
import re
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
from fuzzing import Case, fuzz, run_memc, wrong_with
from random_onnx import Drawn
from random_onnx_nodes import STEPS
from text_mutations import mutate, of_bytes

import memc
from memc.frontend.memir import verified
from memc.ir.core import Array, Role
from memc.ir.errors import CheckError, InvalidError, MemcError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import lookup
from memc.ir.text.parser import parse
from memc.ir.types import TensorType
from memc.measure.random_data import random_array
from memc.passes.manager import PassManager

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"

GRAPHS = 24
"""Random ONNX graphs whose texts are changed."""

PIPELINES = (
    "canonicalize",
    "canonicalize,fuse,reorder,in-place,assign-addresses",
    "materialize-returns,decompose,in-place,share{strategy=color},assign-addresses{solver=sequential}",
    "decompose,canonicalize,fuse,select-kernels,in-place,assign-addresses",
    "reorder,assign-addresses{solver=none}",
    "rematerialize{budget=70%},assign-addresses",
)

SMALL = 20000
"""Elements of all values together, up to which a module is executed."""


@lru_cache(maxsize=1)
def corpus() -> tuple[str, ...]:
    """Valid texts of one function @main each."""
    texts: list[str] = []
    for path in sorted(GOLDEN.rglob("*.memir")):
        for part in path.read_text(encoding="utf-8").split("// -----"):
            text = re.sub(r"^\s*//.*\n", "", part, flags=re.MULTILINE)
            texts += [f"func @main{body}" for body in re.split(r"func @[\w.$-]+", text)[1:]]
    for seed in range(GRAPHS):
        drawn = Drawn(seed, STEPS)
        if drawn.nodes:
            texts += [str(memc.compile(drawn.proto(), opt_level=n, plan_only=True).module) for n in (0, 1, 2)]
            texts.append(str(memc.import_onnx(drawn.proto())))
    return tuple(text for text in texts if len(text) < 20000)


def check(case: Case) -> None:
    rng = random.Random(case.seed)
    text = rng.choice(corpus())
    if case.seed % 10 == 0:
        return check_command(case, rng, of_bytes(rng, text.encode()))
    if rng.random() < 0.8:
        text = mutate(rng, text, corpus())
    (case.folder / "case.memir").write_text(text, encoding="utf-8", errors="replace")
    try:
        module = verified(parse(text, "case.memir"), "case.memir")
    except InvalidError as error:
        case.counts["refused"] += 1
        if "expected operands and attributes as" in str(error):
            case.found.append(f"no rule of the op says what is wrong: {error}")
        return None
    case.counts["accepted"] += 1
    again = str(module)
    if str(parse(again)) != again:
        case.found.append(f"does not read back: {again}")
    if not any(function.name == "main" for function in module.functions):
        return None
    check_execution(case, rng, parse(text), complete=False)
    check_passes(case, rng.choice(PIPELINES), parse(text))
    return check_plan_of(case, rng, text)


def check_command(case: Case, rng: random.Random, data: bytes) -> None:
    """Changed bytes through a verb."""
    path = case.folder / "case.memir"
    path.write_bytes(data)
    verb = rng.choice((["opt"], ["opt", "-p", rng.choice(PIPELINES)], ["plan"], ["compile", "--plan-only", "-q"]))
    done = run_memc([*verb, str(path)])
    case.counts[f"exit {done.code}"] += 1
    wrong = wrong_with(done, frozenset({0, 2, 3, 4}))
    if wrong:
        case.found.append(f"{' '.join(verb)}: {wrong}")


def check_passes(case: Case, pipeline: str, module: Module) -> None:
    """Passes leave valid IR valid."""
    try:
        PassManager.parse(pipeline).run(module)
    except CheckError as error:
        case.found.append(f"{pipeline}: {error}")
    except MemcError:
        return
    case.counts["passed"] += 1


def check_plan_of(case: Case, rng: random.Random, text: str) -> None:
    """The text planned at a level; what is planned is executed."""
    level = rng.randrange(3)
    try:
        planned = memc.compile(parse(text), opt_level=level, plan_only=True).module
    except CheckError as error:
        case.found.append(f"-O{level}: {error}")
        return
    except MemcError:
        return
    case.counts["planned"] += 1
    check_execution(case, rng, planned, complete=True)


def check_execution(case: Case, rng: random.Random, module: Module, complete: bool) -> None:
    """A small module of known ops gives the same bits plainly and in the arena. `complete`: it must have a whole plan."""
    function = module.main
    ops = [inner for op in function.ops for inner in (op, *(op.region.ops if op.region is not None else ()))]
    types = [value.type for op in ops for value in (*op.operands, *op.results)]
    if sum(type.elements for type in (*types, *(p.type for p in function.params))) > SMALL:
        return
    if any(lookup(op.name) is None and op.region is None for op in ops):
        return
    if any(value.placement is not None and value.placement.offset > 2**24 for value in function.values()):
        return
    generator = np.random.default_rng(case.seed)
    given: dict[str, Array] = {}
    for param in function.params:
        data = _data(param.type, generator)
        if param.role is Role.INPUT:
            given[param.name] = data
        elif param.name not in module.weights:
            module.weights[param.name] = data
    try:
        plain = evaluate(module, given)
    except MemcError:
        return
    try:
        planned = evaluate_in_arena(module, given)
    except InvalidError as error:
        if complete:
            case.found.append(f"arena: {error}")
        return
    case.counts["executed"] += 1
    for name, want in plain.items():
        if planned[name].tobytes() != want.tobytes():
            case.found.append(f"output {name}: in the arena {planned[name].flat[:8]}, plainly {want.flat[:8]}")


def _data(type: TensorType, generator: np.random.Generator) -> Array:
    return random_array(type, generator)


if __name__ == "__main__":
    sys.exit(fuzz(check, __doc__, "texts"))
