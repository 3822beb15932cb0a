# SPDX-License-Identifier: Apache-2.0
"""memc.bench from Python; its numbers are tested with the command line (cli/test_bench.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import memc
from memc.ir.errors import UsageError
from memc.ir.module import Module
from memc.measure.benchmark import Benchmark, batch_of
from memc.passes.training.build_gradient import BuildGradient
from memc.runtime.artifact.manifest import Spec

TEXT = """\
func @main(%x: f32[8,16] {role = input}, %w: f32[16,4] {role = weight}) -> (f32[8,4] {name = "y"}) {
  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[8,4]
  return %y
}
"""


def module() -> Module:
    found = memc.parse(TEXT)
    found.weights["w"] = np.ones((16, 4), np.float32)
    return found


def spec(name: str, *shape: int) -> Spec:
    return Spec(name, "f32", shape)


def test_the_batch_is_what_all_inputs_have_first() -> None:
    assert batch_of([spec("x", 8, 3), spec("labels", 8), spec("learning_rate")]) == 8
    assert batch_of([spec("x", 8, 3), spec("state", 2, 8, 4)]) is None
    assert batch_of([spec("x")]) is None and batch_of([]) is None


def test_statistics_of_known_times() -> None:
    seconds = (0.5, 0.1, 0.2, 0.4, 0.3, 1.0, 0.6, 0.7, 0.9, 0.8)
    found = Benchmark("llvm", False, 2, 1, seconds, 4, {}, None, None)
    assert (found.runs, found.least, found.p90) == (10, 0.1, 0.9) and found.median == pytest.approx(0.55)
    assert found.runs_per_second == pytest.approx(10 / 5.5) and found.items_per_second == pytest.approx(40 / 5.5)
    assert Benchmark("llvm", False, 2, 1, seconds, None, {}, None, None).items_per_second is None


def test_models_and_training_steps() -> None:
    found = memc.bench(module(), runs=2, warmup=0)
    assert (found.training, found.batch, found.runs, found.profile) == (False, 8, 2, None)
    step = memc.bench(module(), runs=2, profiled_runs=1, train=BuildGradient(loss="mse"))
    assert step.training and step.profile is not None
    assert sum(op.flops for op in step.profile.ops if op.name == "matmul") == 2 * 2 * 8 * 16 * 4


def test_many_short_runs_take_hardly_longer_than_what_is_measured() -> None:
    compiled = memc.compile(module())
    start = time.perf_counter()
    found = memc.bench(compiled.path, runs=1, min_seconds=2.0, threads=1)
    assert sum(found.seconds) >= 2.0 > sum(found.seconds[:-1])
    assert time.perf_counter() - start - sum(found.seconds) < 4.0


def test_inputs_may_be_made_of_their_descriptions() -> None:
    asked: list[str] = []

    def make(specs: Sequence[Spec]) -> dict[str, np.ndarray]:
        asked.extend(str(item) for item in specs)
        return {"x": np.ones((8, 16), np.float32)}

    memc.bench(module(), runs=1, inputs=make)
    assert asked == ["x: f32[8,16]"]


def test_bad_arguments(tmp_path: Path) -> None:
    path = tmp_path / "m.memc"
    memc.compile(module(), path)
    for arguments, message in (
        ({"inputs": {"z": np.ones(1)}}, "input z: no such input; expected x"),
        ({"inputs": {"x": np.ones((8, 15), np.float32)}}, r"input x: expected f32\[8,16\], got f32\[8,15\]"),
        ({"opt_level": 1}, "is an artifact; expected a model for the option opt-level"),
        ({"min_seconds": float("nan")}, "min seconds: expected a finite number of seconds, got nan"),
        ({"warmup": -1}, "warmup: expected a number from 0 on, got -1"),
        ({"runs": 2.5}, "runs: expected a number, got 2.5"),
        ({"threads": "1"}, "threads: expected a whole number, got .1."),
    ):
        with pytest.raises(UsageError, match=message):
            memc.bench(path, **arguments)
    with pytest.raises(UsageError, match="nothing to run: compiled with plan_only"):
        memc.bench(module(), plan_only=True)
