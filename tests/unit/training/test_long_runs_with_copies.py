# SPDX-License-Identifier: Apache-2.0
"""Two hundred training steps with values and optimizer states on the host: the bits of those without."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.copies import host_params
from memc.ir.core import Array, Role
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.runtime.execute.training import TrainingStep

WIDTH, ROWS, LAYERS, STEPS = 160, 128, 5, 200
"""Activations of 80 KiB, weights of 100."""


@pytest.fixture(scope="module")
def perceptron() -> onnx.ModelProto:
    """Tanh layers."""
    rng, last = np.random.default_rng(0), "x"
    nodes, weights = [], []
    for n in range(LAYERS):
        weights.append(numpy_helper.from_array((rng.standard_normal((WIDTH, WIDTH)) / 12).astype(np.float32), f"w{n}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{n}"], [f"m{n}"]),
            helper.make_node("Tanh", [f"m{n}"], [f"t{n}"]),
        ]
        last = f"t{n}"
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDTH]) for name in ("x", last))
    graph = helper.make_graph(nodes, "perceptron", [given], [made], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> str:
    """So quick that copies are always worth it."""
    path = tmp_path_factory.mktemp("link") / "quick.json"
    way = {"bandwidth": 1e13, "shared": 1e13, "latency": 1e-9}
    path.write_text(json.dumps({"link": {"out": way, "in": way}}))
    return str(path)


def compiled(model: onnx.ModelProto, **how: Any) -> memc.Compilation:
    # Workspaces that depend on what is free may sum in another order.
    return memc.compile(model, train=memc.BuildGradient(optimizer="adam"), workspace="none", **how)


@pytest.fixture(scope="module")
def plans(perceptron: onnx.ModelProto, link: str) -> tuple[memc.Compilation, memc.Compilation]:
    """Without copies, and with both kinds of them in less memory."""
    plain = compiled(perceptron)
    budget = plain.report.peak_bytes - plain.report.arena_bytes // 4 - LAYERS * WIDTH * WIDTH * 4
    moved = compiled(perceptron, memory_budget=budget, offload="auto", offload_states="all", link=link)
    assert moved.report.peak_bytes <= budget and len(host_params(moved.module.main)) >= LAYERS
    assert moved.report.offload is not None and moved.report.offload.offloaded_bytes >= ROWS * WIDTH * 4
    return plain, moved


def trace(compilation: memc.Compilation) -> list[bytes]:
    """The bits of the losses, and then of all weights and states."""
    step, rng = compilation.load(), np.random.default_rng(7)
    assert isinstance(step, TrainingStep)
    labels, found = step.inputs[1].shape, []
    for _ in range(STEPS):
        x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
        found.append(np.float64(step(x, rng.integers(0, 10, labels))).tobytes())
    assert len(set(found)) > STEPS // 2  # It trains.
    return [*found, *(array.tobytes() for _, array in sorted(step.state().items()))]


def test_losses_weights_and_states_are_the_same_bits(
    plans: tuple[memc.Compilation, memc.Compilation], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, moved = plans
    expected = trace(plain)
    for times in ("thread", "random:5"):
        monkeypatch.setenv("MEMC_COPIES", times)
        assert trace(moved) == expected, times


@pytest.mark.parametrize("copies", ["start", "done", 1, 2])
def test_in_numpy_the_plan_gives_the_bits_of_the_plain_one(
    plans: tuple[memc.Compilation, memc.Compilation], copies: Any
) -> None:
    plain, moved = (plan.module for plan in plans)
    rng = np.random.default_rng(3)
    given: dict[str, Array] = {}
    for param in moved.main.params_of(Role.INPUT, Role.STATE):
        shape, dtype = param.type.shape, param.type.dtype.numpy
        drawn = rng.uniform(0, 1, shape) if dtype.kind == "f" else rng.integers(0, 10, shape)
        given[param.name] = np.asarray(drawn, dtype)
    expected = evaluate(plain, given)
    found = evaluate_in_arena(moved, given, copies=copies)
    assert found.keys() == expected.keys() and len(found) > 2 * LAYERS
    assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in expected.items()}
