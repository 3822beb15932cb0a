# SPDX-License-Identifier: Apache-2.0
"""Kernels of updates of many sizes: the same bits as one kernel for each, and tables that cover every element once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.core import Op
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.passes.training.build_gradient import BuildGradient
from memc.runtime.codegen.multi_tensor import CHUNK, Kind, Place, kinds_of, lower_lanes

MODEL = """
func @main(%x: f32[16,33] {role = input}, %w1: f32[33,70] {role = weight}, %b1: f32[70] {role = weight}, %w2: f32[70,5] {role = weight}, %b2: f32[5] {role = weight}, %scale: f32[] {role = weight}) -> f32[16,5] {
  %0 = matmul(%x, %w1) {transpose_a = false, transpose_b = false} : f32[16,70]
  %1 = add(%0, %b1) : f32[16,70]
  %2 = tanh(%1) : f32[16,70]
  %3 = matmul(%2, %w2) {transpose_a = false, transpose_b = false} : f32[16,5]
  %4 = add(%3, %b2) : f32[16,5]
  %5 = mul(%4, %scale) : f32[16,5]
  return %5
}
"""

GROUPED = pipeline(2, "llvm").replace(",in-place,", ",delay-updates,in-place,") + ",join-updates"


def model() -> Module:
    module = parse(MODEL, "test")
    rng = np.random.default_rng(0)
    module.weights = {
        p.name: rng.normal(size=p.type.shape).astype(np.float32) for p in module.main.params if p.name != "x"
    }
    return module


def lanes_of(module: Module) -> dict[Any, dict[Any, list[Op]]]:
    """By the number of each kernel, its lanes."""
    found: dict[Any, dict[Any, list[Op]]] = {}
    for op in module.main.ops:
        if op.plan.lane is not None:
            found.setdefault(op.plan.joint, {}).setdefault(op.plan.lane, []).append(op)
    return found


def states_after(tmp_path: Path, text: str, train: BuildGradient) -> tuple[dict[str, bytes], int, Module]:
    done = memc.compile(model(), tmp_path / "step.memc", train=train, pass_pipeline=text)
    step = done.load()
    step.learning_rate = 0.05
    rng = np.random.default_rng(1)
    for _ in range(3):
        step(rng.normal(size=(16, 33)).astype(np.float32), rng.integers(0, 5, 16))
    return {name: value.tobytes() for name, value in step.state().items()}, done.report.arena_bytes, done.module


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({"optimizer": "sgd"}, 1),
        ({"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, 2),
        ({"optimizer": "adam", "weight_decay": 0.1}, 3),
        ({"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5}, 3),
    ],
)
def test_the_same_bits_in_no_more_memory(tmp_path: Path, options: dict[str, Any], parameters: int) -> None:
    alone, arena, _ = states_after(tmp_path, pipeline(2, "llvm"), BuildGradient(**options))
    together, grouped_arena, module = states_after(tmp_path, GROUPED, BuildGradient(**options))
    assert together == alone
    assert grouped_arena <= arena
    assigned = [op for lanes in lanes_of(module).values() for lane in lanes.values() for op in lane]
    of_weights = [op for op in assigned if op.region and op.region.ops[-1].name == "assign"]
    assert len(of_weights) >= 3 * parameters  # Small products' gradients are updated where they are made.


def test_blocks_are_shared_out_to_lanes() -> None:
    kind = Kind([], [], [], [], [1, CHUNK, CHUNK + 1, 3 * CHUNK])
    assert kind.starts == [0, 1, 2, 4, 7]


def test_lanes_that_do_the_same_share_their_code() -> None:
    module = model()
    BuildGradient(optimizer="adam").apply(module)
    PassManager.parse(GROUPED).run(module)
    offsets = {value: 64 * number for number, value in enumerate(module.main.values())}

    def place(value: Any) -> Place:
        return Place("slab" if value.root.op is None else "arena", offsets[value.root])

    (lanes,) = [list(group.values()) for group in lanes_of(module).values() if len(group) == 5]
    kinds = kinds_of(lanes, place)
    assert sum(len(kind.elements) for kind in kinds) == 5 > len(kinds)
    assert sorted(n for kind in kinds for n in kind.elements) == [1, 5, 70, 350, 2310]
    for kind in kinds:
        assert len({tensor.storage for tensor in kind.tensors}) == 2
        assert all(len(row) == len(kind.tensors) for row in kind.offsets)
    text = lower_lanes(lanes, place, lambda storage: 1 << 20, "cuda").func.script()
    assert text.count("MEMC_LANE") == sum(len(kind.elements) > 1 for kind in kinds)
    assert text.count("blockIdx.x") == 1
