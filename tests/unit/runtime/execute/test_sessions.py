# SPDX-License-Identifier: Apache-2.0
"""Sessions: executables of one artifact that run at the same time in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import memc
from memc.ir.module import Module
from memc.passes.training.build_gradient import BuildGradient
from memc.runtime.execute.load import load
from memc.runtime.execute.tensors import array_over
from memc.runtime.execute.training import TrainingStep

Write = Callable[..., Path]
TEXT = """\
func @main(%x: f32[8,16] {role = input}, %w: f32[16,4] {role = weight}) -> (f32[8,4] {name = "y"}) {
  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[8,4]
  return %y
}
"""


def slab(executable: memc.Executable) -> np.ndarray:
    return array_over(executable.virtual_machine["bytes.weights"](executable.storages["weights"]), "u8")


@pytest.mark.parametrize("kernels", ["auto", "generated"])
def test_threads_give_what_one_gives(network: Module, plan: Callable, write: Write, kernels: str) -> None:
    executable = load(write(plan(network, kernels=kernels)))
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(4, 8)).astype(np.float32) for _ in range(4)]
    expected = [executable(x) for x in data]
    sessions = [executable.session() for _ in data]
    together = threading.Barrier(len(data))

    def work(number: int) -> list[dict[str, np.ndarray]]:
        together.wait(timeout=60)
        return [sessions[number](data[number]) for _ in range(200)]

    with ThreadPoolExecutor(len(data)) as pool:
        for number, found in enumerate(pool.map(work, range(len(data)))):
            for results in found:
                for name, value in results.items():
                    np.testing.assert_array_equal(value, expected[number][name])


def test_a_session_shares_weights_and_nothing_else(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    session = executable.session()
    assert slab(session).ctypes.data == slab(executable).ctypes.data
    assert session.storages["arena"] is not executable.storages["arena"] and session.running is not executable.running
    with executable.running:  # A run of one does not wait for the other's.
        assert session(np.ones((4, 8), np.float32))["y0"].shape == (4, 32)


def test_a_session_outlives_what_it_came_from(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    x = np.ones((4, 8), np.float32)
    expected = executable(x)["y0"]
    session = executable.session()
    del executable
    np.testing.assert_array_equal(session(x)["y0"], expected)


def training_step() -> TrainingStep:
    module = memc.parse(TEXT)
    module.weights["w"] = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)
    step = memc.compile(module, train=BuildGradient(loss="mse", optimizer="sgd", momentum=0.9)).load()
    assert isinstance(step, TrainingStep)
    step.learning_rate = 0.05
    return step


def test_training_sessions_have_states_of_their_own() -> None:
    step = training_step()
    rng = np.random.default_rng(2)
    batches = [rng.normal(size=(2, 8, 16)).astype(np.float32), rng.normal(size=(2, 8, 4)).astype(np.float32)]
    before = step.state()
    losses = [step(x, t) for x, t in zip(*batches)]
    step.load_state(before)
    first, second = step.session(), step.session()
    assert first.learning_rate == 0.05 and slab(first).ctypes.data != slab(step).ctypes.data
    assert [first(x, t) for x, t in zip(*batches)] == losses
    for name, value in step.state().items():
        np.testing.assert_array_equal(value, before[name])
        np.testing.assert_array_equal(second.state()[name], before[name])
    assert any(not np.array_equal(value, before[name]) for name, value in first.state().items())


def test_training_sessions_in_threads() -> None:
    step = training_step()
    rng = np.random.default_rng(3)
    x, t = rng.normal(size=(8, 16)).astype(np.float32), rng.normal(size=(8, 4)).astype(np.float32)
    sessions = [step.session() for _ in range(3)]
    expected = [step(x, t) for _ in range(50)]
    with ThreadPoolExecutor(len(sessions)) as pool:
        for losses in pool.map(lambda session: [session(x, t) for _ in range(50)], sessions):
            assert losses == expected
