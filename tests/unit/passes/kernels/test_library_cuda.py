# SPDX-License-Identifier: Apache-2.0
"""fuse-library and select-workspace: what joins a CUDA library kernel's op, and where its workspace lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.function_footprint import footprint_of
from memc.ir.liveness import arena_bytes, lifetimes
from memc.ir.module import Module
from memc.ir.sizes import align
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.passes.kernels.early_updates import move_updates
from memc.passes.manager import PassManager
from memc.passes.pipelines import Workspace, pipeline

WINDOW = {"strides": (1, 1), "dilations": (1, 1), "group": 1}


def network() -> Module:
    """Residual blocks with and without biases, a clipped convolution, a transposed one, and two products."""
    rng = np.random.default_rng(2)
    x = Value("x", TensorType(DType.F32, (2, 4, 48, 48)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)

    def weight(*shape: int) -> Value:
        return b.constant(rng.normal(size=shape).astype(np.float32))

    def conv(v: Value, channels: int, kernel: int, bias: bool = True) -> Value:
        extra = [weight(channels)] if bias else []
        pads = (kernel // 2,) * 4
        return b.op("conv", [v, weight(channels, v.type.shape[1], kernel, kernel), *extra], pads=pads, **WINDOW)

    h = b.op("relu", [conv(x, 8, 3)])
    inner = b.op("relu", [conv(h, 8, 3, bias=False)])
    h = b.op("relu", [b.op("add", [conv(inner, 8, 1), h])])
    h = b.op("clip", [conv(h, 8, 1)], min=0.0, max=6.0)
    up = {"strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1, "output_padding": (0, 0)}
    h = b.op("conv_transpose", [h, weight(8, 4, 2, 2), weight(4)], **up)
    h = b.op("reduce_mean", [h], axes=(2, 3), keepdims=False)
    plain = {"transpose_a": False, "transpose_b": False}
    h = b.op("relu", [b.op("add", [b.op("matmul", [h, weight(4, 6)], **plain), weight(6)])])
    function.returns = [b.op("matmul", [h, weight(6, 3)], **plain)]
    function.result_names = ["y"]
    return module


def planned(module: Module, text: str | None = None) -> Module:
    module.target = Target.of("cuda")
    PassManager.parse(text or pipeline(2, "cuda")).run(module)
    return module


def library_ops(module: Module) -> list[tuple[str, list[str]]]:
    """The library calls: symbol, and what each computes."""
    found = []
    for op in module.main.ops:
        if op.plan.library_kernel is not None:
            parts = [inner.name for inner in op.region.ops] if op.region is not None else [op.name]
            found.append((str(op.plan.library_kernel), parts))
    return found


def test_what_follows_joins_the_call() -> None:
    assert library_ops(planned(network())) == [
        ("memc.cuda.conv", ["conv", "relu"]),
        ("memc.cuda.conv", ["conv", "relu"]),
        ("memc.cuda.conv", ["conv", "add", "relu"]),
        ("memc.cuda.conv", ["conv"]),
        ("memc.cuda.conv_transpose", ["conv_transpose"]),
        ("memc.cuda.matmul", ["matmul", "add", "relu"]),
        ("memc.cuda.matmul", ["matmul"]),
    ]


def test_results_stay_the_same() -> None:
    x = np.random.default_rng(3).normal(size=(2, 4, 48, 48)).astype(np.float32)
    expected = evaluate(network(), {"x": x})["y"]
    np.testing.assert_allclose(evaluate_in_arena(planned(network()), {"x": x})["y"], expected, rtol=1e-4, atol=1e-4)


def test_a_bias_without_relu_is_left_to_the_next_kernel() -> None:
    module = planned(network())
    clipped = next(op for op in module.main.ops if op.region is not None and op.region.ops[-1].name == "clip")
    assert [inner.name for inner in clipped.region.ops] == ["add", "clip"]  # type: ignore[union-attr]
    assert all(len(op.operands) == 2 for op in module.main.ops if op.name in ("conv", "conv_transpose"))


def test_the_result_takes_over_the_residual() -> None:
    module = planned(network())
    added = next(op for op in module.main.ops if op.region is not None and len(op.region.ops) == 3)
    assert added.plan.in_place == 3 and added.result.root is added.operands[3].root
    assert all(added.result.root is not v.root for v in added.operands[:3])


def test_a_second_reader_keeps_the_op_alone() -> None:
    module = network()
    convolution = next(op for op in module.main.ops if op.name == "conv")
    module.main.returns.append(convolution.result)
    module.main.result_names.append("z")
    assert ("memc.cuda.conv", ["conv"]) == library_ops(planned(module))[0]


def generated(op: Op) -> bool:
    return op.plan.library_kernel is None


def test_no_library_leaves_all_alone() -> None:
    assert all(map(generated, planned(network(), pipeline(2, "cuda", "generated")).main.ops))


def test_workspaces_lie_in_gaps_and_cost_nothing() -> None:
    text = pipeline(2, "cuda")
    without = planned(network(), text[: text.index(",select-workspace")])
    module = planned(network())
    assert arena_bytes(module.main, 256) == arena_bytes(without.main, 256)
    spaces = [op.workspace for op in module.main.ops if op.workspace is not None]
    assert spaces and all(s.placement is not None and s.placement.offset % 256 == 0 for s in spaces)
    lives = lifetimes(module.main)
    for a in lives:
        for b in lives:
            if a is not b and a.lower < b.upper and b.lower < a.upper:
                low, high = sorted((a, b), key=lambda life: life.root.placement.offset)  # type: ignore[union-attr]
                assert low.root.placement.offset + low.nbytes <= high.root.placement.offset  # type: ignore[union-attr]


@pytest.mark.parametrize("beyond", [0, 4096, 1 << 20])
def test_a_workspace_may_take_memory_of_its_own(beyond: int) -> None:
    text = pipeline(2, "cuda")
    before = text[: text.index(",select-workspace")]
    module = planned(network(), f"{before},select-workspace{{beyond={beyond}}}")
    least = min(op.workspace.type.nbytes if op.workspace else 0 for op in module.main.ops if not generated(op))
    assert least >= min(beyond, 32 * 24)  # What the last product of 24 bytes can use.
    assert arena_bytes(module.main, 256) <= arena_bytes(planned(network(), before).main, 256) + align(beyond, 256)


@pytest.mark.parametrize("repeats", [False, True])
def test_workspaces_fill_what_a_kept_budget_leaves(repeats: bool) -> None:
    """Where something is recomputed, workspaces may make the arena larger up to the budget, of which weights and inputs take a
    part; else the function is as without one."""
    text = pipeline(2, "cuda")
    before = text[: text.index(",select-workspace")]
    module = planned(network(), before)
    if repeats:
        op = next(op for op in module.main.ops if op.name == "relu" or op.region is not None)
        op.plan = replace(op.plan, recompute=(1,))
    arena, peak = arena_bytes(module.main, 256), footprint_of(module.main, module.target).peak
    room = 8192
    PassManager.parse(f"select-workspace{{within={peak + room + 100}}}").run(module)
    spaces = [op.workspace for op in module.main.ops if op.workspace is not None]
    ends = [s.placement.offset + s.type.nbytes for s in spaces if s.placement is not None]
    if repeats:
        assert arena < max(ends) == arena + room == arena_bytes(module.main, 256)
        assert footprint_of(module.main, module.target).peak == peak + room
    else:
        assert ends and max(ends) <= arena == arena_bytes(module.main, 256)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_workspaces_are_allowed(level: int) -> None:
    """None but the least; what is free, from -O2 on, which costs nothing; a mebibyte, or what the op has use for."""

    def plan(workspace: Workspace) -> tuple[int, list[int]]:
        module = planned(network(), pipeline(level, "cuda", workspace=workspace))
        calls = [op for op in module.main.ops if not generated(op)]
        assert calls
        return arena_bytes(module.main, 256), [op.workspace.type.nbytes if op.workspace else 0 for op in calls]

    (least, none), (free_arena, free), (arena, beyond) = plan("none"), plan("free"), plan(1 << 20)
    assert free_arena == least < arena <= least + (1 << 20)
    assert (sum(free) > sum(none)) == (level == 2)
    assert all(most > few for few, most in zip(none, beyond))


@pytest.mark.parametrize(("columns", "moves"), [(64, True), (1024, False)])
def test_an_update_waits_for_the_weights_reader_if_that_costs_less_than_the_gradient(columns: int, moves: bool) -> None:
    """The factors of the gradient are larger than it. What reads the weight while they wait may make little, or much."""
    g = Value("g", TensorType(DType.F32, (columns, 128)), role=Role.INPUT)
    x = Value("x", TensorType(DType.F32, (512, 128)), role=Role.INPUT)
    w = Value("w", TensorType(DType.F32, (128, 64)), role=Role.STATE)
    rate = Value("rate", TensorType(DType.F32, ()), role=Role.INPUT)
    function = Function([g, x, w, rate])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    left, right = b.op("exp", [x]), b.op("sin", [b.op("slice", [x], starts=(0, 0), stops=(512, 64), steps=(1, 1))])
    product = b.op("matmul", [left, right], transpose_a=True, transpose_b=False)
    reader = b.op("matmul", [g, w], transpose_a=False, transpose_b=False)
    moved = b.op("sub", [w, b.op("mul", [product, rate])])
    function.returns = [b.op("exp", [reader]), b.op("assign", [w, moved])]
    move_updates(module, function, "cuda")
    position = {op: index for index, op in enumerate(function.ops)}
    assert (position[product.op] > position[reader.op]) == moves
