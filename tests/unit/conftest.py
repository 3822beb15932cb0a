# SPDX-License-Identifier: Apache-2.0
"""Helpers: run a pipeline on IR text; small random modules from a seed (aliases, branches, odd sizes, returns)."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.clone import clone_op
from memc.ir.core import Array, Function, Role, Value, fresh_names
from memc.ir.errors import OpError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.op_queries import has
from memc.ir.ops.shared.op_def import Trait
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager

SHAPES = ((4, 16), (16, 4), (2, 32), (64,), (1, 64), (3, 5), (8, 16), (2, 4, 8), (4, 1), (16,), (0, 4), ())


def run_passes(text: str, pipeline: str) -> Module:
    """The module of IR `text` after `pipeline`."""
    module = parse(text)
    PassManager.parse(pipeline).run(module)
    return module


def make_random_module(seed: int, ops: int = 14) -> tuple[Module, dict[str, Array]]:
    """A module with about `ops` ops and inputs for it."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    params = [
        Value(f"x{i}", TensorType(DType.F32, rng.choice(SHAPES)), role=Role.INPUT) for i in range(rng.randint(1, 3))
    ]
    function = Function(params)
    module = Module([function])
    builder = IRBuilder(module, function, function.ops)
    pool = list(params)
    for _ in range(2):
        shape = rng.choice(SHAPES)
        pool.append(builder.constant(numbers.uniform(0.5, 1.5, shape).astype(np.float32)))
    while len(function.ops) < ops:
        # Mostly recent values, so that chains form.
        operand = pool[-rng.randint(1, min(len(pool), 4))] if rng.random() < 0.7 else rng.choice(pool)
        try:
            pool.append(_random_op(builder, rng, pool, operand))
        except OpError:
            continue
    results = [v for v in pool if v.op is not None or rng.random() < 0.2]
    function.returns = [rng.choice(results) for _ in range(rng.randint(1, 3))]
    inputs = {p.name: numbers.standard_normal(p.type.shape).astype(np.float32) for p in function.params_of(Role.INPUT)}
    return module, inputs


def _random_op(b: IRBuilder, rng: random.Random, pool: list[Value], x: Value) -> Value:
    kind = rng.choice(
        "unary unary unary binary binary binary reshape reshape transpose slice slice concat concat matmul softmax "
        "reduce broadcast pad copy cast twice".split()
    )
    rank, shape = x.type.rank, x.type.shape
    alike = [v for v in pool if v.type == x.type]
    if kind == "unary":
        return b.op(rng.choice(("relu", "neg", "tanh", "abs")), [x])
    if kind == "binary":
        other = rng.choice(alike) if rng.random() < 0.7 else rng.choice(pool)
        return b.op(rng.choice(("add", "sub", "mul", "max")), [x, other])
    if kind == "twice":
        return b.op("mul", [x, x])
    if kind == "reshape":
        return b.op("reshape", [x], shape=rng.choice([s for s in (*SHAPES, shape) if np.prod(s) == x.type.elements]))
    if kind == "transpose":
        return b.op("transpose", [x], perm=tuple(rng.sample(range(rank), rank)))
    if kind == "slice" and rank:
        axis = rng.randrange(rank)
        bounds = sorted(rng.randint(0, shape[axis]) for _ in range(2))
        starts = tuple(bounds[0] if i == axis else 0 for i in range(rank))
        stops = tuple(bounds[1] if i == axis else n for i, n in enumerate(shape))
        return b.op("slice", [x], starts=starts, stops=stops, steps=(1,) * rank)
    if kind == "concat" and rank:
        return b.op("concat", [x, *(rng.choice(alike) for _ in range(rng.randint(0, 2)))], axis=rng.randrange(rank))
    if kind == "matmul":
        return b.op("matmul", [x, rng.choice(pool)], transpose_a=rng.random() < 0.3, transpose_b=rng.random() < 0.3)
    if kind == "softmax" and rank:
        return b.op("softmax", [x], axis=rng.randrange(rank))
    if kind == "reduce" and rank:
        name = rng.choice(("reduce_sum", "reduce_max"))
        return b.op(name, [x], axes=(rng.randrange(rank),), keepdims=rng.random() < 0.7)
    if kind == "broadcast":
        return b.op("broadcast", [x], shape=(rng.choice((1, 2)), *shape))
    if kind == "pad" and rank:
        return b.op("pad", [x], low=(1,) * rank, high=(0,) * rank, value=0.0, mode="constant")
    if kind == "copy":
        return b.op("copy", [x])
    if kind == "cast":
        return b.op("cast", [b.op("cast", [x], to=DType.F64)], to=DType.F32)
    raise OpError("not for a scalar")


VERSIONS = 3
"""How often `rounded_apart` computes each value."""


def evaluate_rounded_apart(module: Module, inputs: dict[str, Array], seed: int) -> list[Array]:
    """The results with each value computed several times, from operands that are rounded apart, and each reader reading any of
    them: as if all were recomputed between any two readers, with other kernels. What is held is computed once."""
    function, rng, numbers = module.main, random.Random(seed), np.random.default_rng(seed)
    held = {v for op in function.ops if has(op, Trait.ONCE) for v in (*op.operands, *op.results)}
    versions: dict[Value, list[Value]] = {}
    params, ops, feeds = [], [], {}
    for param in function.params:
        versions[param] = [Value(f"{param.name}_{n}", param.type, role=Role.INPUT) for n in range(VERSIONS)]
        params += versions[param]
        array = module.weights[param.name] if param.role is Role.WEIGHT else inputs[param.name]
        for version in versions[param]:
            moved = array
            if param.type.dtype.is_float:
                steps = np.where(np.isfinite(array), np.spacing(np.nan_to_num(array)), 0)
                moved = (array + steps * numbers.integers(-2, 3, array.shape)).astype(array.dtype)
            feeds[version.name] = moved
    names = fresh_names(v.name for v in params)
    for op in function.ops:
        once = op.name == "constant" or any(v in held for v in op.results)
        copies = []
        for _ in range(1 if once else VERSIONS):
            read = {v: rng.choice(versions[v]) for v in op.operands}
            copies.append(clone_op(op, [read[v] for v in op.operands], names))
        ops += copies
        versions.update((v, [c.results[k] for c in copies]) for k, v in enumerate(op.results))
    returns = [rng.choice(versions[v]) for v in function.returns]
    recomputed = Module([Function(params, ops, returns)])
    return list(evaluate(recomputed, feeds).values())


@pytest.fixture
def rounded_apart() -> Callable[[Module, dict[str, Array], int], list[Array]]:
    return evaluate_rounded_apart


@pytest.fixture
def run() -> Callable[[str, str], Module]:
    return run_passes


@pytest.fixture
def random_module() -> Callable[..., tuple[Module, dict[str, Array]]]:
    return make_random_module
