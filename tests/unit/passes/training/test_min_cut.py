# SPDX-License-Identifier: Apache-2.0
"""What a minimum cut keeps: the fewest bytes of all choices, within a share of the step's time, with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Role, Value
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.op_queries import view_offset
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.passes.training.min_cut import added_bytes, is_cheap, kept_bytes, min_cut_counts, read_by
from memc.passes.training.mirror import Policy
from memc.report.compile_report import Report

WIDTH = 8

Build = Callable[[IRBuilder, Value, Callable[..., Value]], Value]


def model(build: Build, x: Sequence[int]) -> Module:
    """What `build` makes of an input, with a function that gives it weights."""
    function = Function([Value("x", TensorType(DType.F32, tuple(x)), role=Role.INPUT)])
    module = Module([function], target=Target.of("cuda"))
    rng = np.random.default_rng(0)

    def weight(*shape: int, role: Role = Role.WEIGHT, scale: float = 0.3, around: float = 0.0) -> Value:
        value = Value(f"w{len(function.params)}", TensorType(DType.F32, shape), role=role)
        function.params.append(value)
        module.weights[value.name] = (around + scale * rng.normal(size=shape)).astype(np.float32)
        return value

    found = build(IRBuilder(module, function, function.ops), function.params[0], weight)
    function.returns, function.result_names = [found], ["y"]
    return module


def times(b: IRBuilder, x: Value, weight: Value) -> Value:
    return b.op("matmul", [x, weight], transpose_a=False, transpose_b=False)


def block(b: IRBuilder, x: Value, weight: Callable[..., Value]) -> Value:
    """Layer norm, a gated product and a residual sum, twice."""
    for _ in range(2):
        h = b.op("layer_norm", [x, weight(WIDTH), weight(WIDTH)], axis=1, epsilon=1e-5)
        gate, up = times(b, h, weight(WIDTH, 24)), times(b, h, weight(WIDTH, 24))
        h = b.op("mul", [b.op("silu", [gate]), b.op("gelu", [up], approximate="tanh")])
        x = b.op("add", [x, times(b, h, weight(24, WIDTH))])
    return x


def convolutions(b: IRBuilder, x: Value, weight: Callable[..., Value]) -> Value:
    """Convolution, batch normalization and ReLU, four times."""
    for _ in range(4):
        x = b.op(
            "conv", [x, weight(24, 24, 3, 3, scale=0.1)], strides=(1, 1), dilations=(1, 1), pads=(1, 1, 1, 1), group=1
        )
        statistics = [weight(24, role=Role.STATE, around=1.0, scale=0.1) for _ in range(2)]
        x = b.op("batch_norm", [x, weight(24, around=1.0), weight(24), *statistics], epsilon=1e-5, momentum=0.9)
        x = b.op("relu", [x])
    return x


MODELS = {"block": (block, (WIDTH,)), "convolutions": (convolutions, (24, 5, 3))}


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize("name", MODELS)
def test_the_step_computes_the_same_bits(name: str, batch: int) -> None:
    build, rest = MODELS[name]
    found = []
    for policy in ("none", "min-cut"):
        module = model(build, (batch, *rest))
        memc.PassManager.parse(f"build-gradient{{loss=mse optimizer=none mirror={policy}}},canonicalize").run(module)
        copies = [op.name for op in module.main.ops if op.plan.recompute[:1] == (1,)]
        assert (policy == "min-cut") == any(name in ("relu", "gelu", "layer_norm") for name in copies)
        shape = module.main.params_of(Role.INPUT)[1].type.shape
        rng = np.random.default_rng(batch)
        feeds = {"x": rng.normal(size=(batch, *rest)), "labels": rng.normal(size=shape)}
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        found.append({name: array.tobytes() for name, array in evaluate(module, feeds).items()})
    assert found[0] == found[1]


def test_batch_normalization_is_recomputed_from_its_statistics() -> None:
    module = model(convolutions, (2, 24, 5, 3))
    memc.PassManager.parse("build-gradient{loss=mse optimizer=none mirror=min-cut},canonicalize").run(module)
    copies = [op.name for op in module.main.ops if op.plan.recompute[:1] == (1,)]
    assert "relu" in copies and "sub" in copies
    assert not any(name.startswith(("reduce", "batch_norm")) for name in copies)


def counted(build: Build, shape: Sequence[int], share: float = 1e9) -> tuple[Module, dict[Op, int]]:
    module = model(build, shape)
    function = module.main
    needed = {v: True for op in function.ops for v in op.results}
    return module, min_cut_counts(function, needed, share=share)


def test_the_narrower_of_two_values_is_kept() -> None:
    def build(b: IRBuilder, x: Value, weight: Callable[..., Value]) -> Value:
        narrow = b.op("cast", [times(b, x, weight(WIDTH, WIDTH))], to=DType.BF16)
        wide = b.op("cast", [narrow], to=DType.F32)
        return times(b, b.op("tanh", [wide]), weight(WIDTH, WIDTH))

    module = model(build, (4, WIDTH))
    product, narrow, wide, bent, _ = module.main.ops
    needed = {wide.result: True, bent.result: True}
    plan = min_cut_counts(module.main, needed, share=1e9)
    # The last one is read by the last product: it is live when the backward pass begins.
    assert [plan[op] for op in (product, narrow, wide, bent)] == [0, 0, 1, 0]


def test_what_takes_too_much_time_is_kept() -> None:
    module, free = counted(block, (4, WIDTH))
    assert any(free.values())
    _, none = counted(block, (4, WIDTH), share=0.0)
    assert not any(count for op, count in none.items() if view_offset(op) is None)


def test_as_much_is_recomputed_as_there_is_time_for() -> None:
    module, free = counted(block, (64, WIDTH))
    needed = {v: True for op in module.main.ops for v in op.results}
    whole = added_bytes(module.main, [op for op, count in free.items() if count], needed)
    sizes = []
    for share in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        plan = min_cut_counts(module.main, needed, share=share)
        dropped = [op for op, count in plan.items() if count]
        assert added_bytes(module.main, dropped, needed) <= whole
        sizes.append(kept_bytes(module.main, dropped, needed))
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 2


def random_graph(seed: int) -> Module:
    """Products and elementwise ops of values chosen at random, of halves and f32."""
    rng = np.random.default_rng(seed)

    def build(b: IRBuilder, x: Value, weight: Callable[..., Value]) -> Value:
        values = [x]
        for _ in range(7):
            kind = rng.integers(4)
            first, second = (values[rng.integers(len(values))] for _ in range(2))
            if kind == 0:
                values.append(times(b, first, weight(WIDTH, WIDTH)))
            elif kind == 1:
                values.append(b.op("tanh", [first]))
            elif kind == 2:
                values.append(b.op("add", [first, second]))
            else:
                values.append(b.op("transpose", [b.op("transpose", [first], perm=(1, 0))], perm=(1, 0)))
        return times(b, values[-1], weight(WIDTH, WIDTH))

    return model(build, (WIDTH, WIDTH))


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_keeps_fewer_bytes(seed: int) -> None:
    module = random_graph(seed)
    function = module.main
    last = set(function.ops[-1].operands)
    rng = np.random.default_rng(seed)
    needed = {v: True for op in function.ops[:-1] for v in op.results if v not in last and rng.integers(2)}
    plan = min_cut_counts(function, needed, share=1e9)

    def kept(dropped: Sequence[Op]) -> int:
        return kept_bytes(function, dropped, {**needed, **dict.fromkeys(last, True)})

    cheap = [op for op in function.ops if is_cheap(op) and op.result not in last]
    choices = ([op for op, drop in zip(cheap, chosen) if drop] for chosen in product((0, 1), repeat=len(cheap)))
    assert kept([op for op, count in plan.items() if count]) == min(map(kept, choices))


def test_what_the_backward_pass_reads_and_has_written() -> None:
    module = model(block, (4, WIDTH))
    forward = list(module.main.ops)
    gate = next(op for op in forward if op.name == "silu").operands[0]
    b = IRBuilder(module, module.main, module.main.ops)
    b.op("sigmoid", [gate])
    up = next(op for op in forward if op.name == "gelu").operands[0]
    b.op("matmul", [b.op("reshape", [up], shape=(4, 24)), up], transpose_a=True, transpose_b=False)
    assert read_by(module.main.ops, set(forward)) == {gate: False, up: True}


def compiled(mirror: Policy, **options: Any) -> Report:
    """As planned for CUDA."""
    train = memc.BuildGradient(loss="mse", mirror=mirror)
    module = model(block, (512, WIDTH))
    return memc.compile(module, train=train, plan_only=True, target="cuda", arch="sm_90", **options).report


@pytest.mark.parametrize("level", [1, 2])
def test_a_planned_step_takes_less(level: int) -> None:
    plain, least = (compiled(mirror, opt_level=level) for mirror in ("none", "min-cut"))
    assert least.arena_bytes < plain.arena_bytes
    assert least.peak_bytes < plain.peak_bytes and least.io_bytes == plain.io_bytes


def test_nothing_is_dropped_where_that_does_not_lower_the_peak() -> None:
    def build(b: IRBuilder, x: Value, weight: Callable[..., Value]) -> Value:
        return times(b, b.op("tanh", [times(b, x, weight(WIDTH, WIDTH))]), weight(WIDTH, WIDTH))

    module = model(build, (4, WIDTH))
    memc.PassManager.parse("mirror{policy=min-cut}").run(module)
    assert not any(op.plan.mirror for op in module.main.ops)


def test_counts_that_are_set_already_stay() -> None:
    module = model(block, (64, WIDTH))
    (first, *_) = (op for op in module.main.ops if op.name == "matmul")
    first.plan = replace(first.plan, mirror=2)
    memc.PassManager.parse("mirror{policy=min-cut}").run(module)
    assert first.plan.mirror == 2
    assert {op.name for op in module.main.ops if op.plan.mirror} > {"matmul"}
