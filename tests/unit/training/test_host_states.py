# SPDX-License-Identifier: Apache-2.0
"""Training with optimizer states on the host between steps: the same bits as with all states on the device, whenever copies run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.copies import host_params
from memc.ir.verify.copy_races import check_copy_races
from memc.runtime.execute.training import TrainingStep

WIDTH, ROWS = 160, 24


def perceptron(layers: int = 3, tied: bool = False) -> bytes:
    """A network of tanh layers; `tied` ones share their weight."""
    rng, last = np.random.default_rng(0), "x"
    nodes, weights = [], []
    for n in range(layers):
        name = "w" if tied else f"w{n}"
        if not (tied and n):
            data = (rng.standard_normal((WIDTH, WIDTH)) / 12).astype(np.float32)
            weights.append(numpy_helper.from_array(data, name))
        weights.append(numpy_helper.from_array(rng.standard_normal(WIDTH).astype(np.float32), f"b{n}"))
        nodes += [
            helper.make_node("MatMul", [last, name], [f"m{n}"]),
            helper.make_node("Add", [f"m{n}", f"b{n}"], [f"a{n}"]),
            helper.make_node("Tanh", [f"a{n}"], [f"t{n}"]),
        ]
        last = f"t{n}"
    return model(nodes, weights, [ROWS, WIDTH], [ROWS, WIDTH], last)


def convolutions() -> bytes:
    rng = np.random.default_rng(1)
    shapes = {"c0": (32, 3, 3, 3), "c1": (64, 32, 3, 3), "c2": (64, 64, 3, 3), "f": (64, 10)}
    data = {name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}
    data |= {
        f"n{n}.{what}": np.full(64 if n else 32, value, np.float32) for n in (0, 1) for what, value in NORM.items()
    }
    last, nodes = "x", []
    for n in range(3):
        nodes.append(helper.make_node("Conv", [last, f"c{n}"], [f"v{n}"], pads=[1, 1, 1, 1]))
        if n < 2:
            names = [f"v{n}", *(f"n{n}.{what}" for what in NORM)]
            nodes.append(helper.make_node("BatchNormalization", names, [f"k{n}"]))
        nodes.append(helper.make_node("Relu", [f"k{n}" if n < 2 else f"v{n}"], [f"r{n}"]))
        last = f"r{n}"
    nodes += [helper.make_node("GlobalAveragePool", [last], ["p"]), helper.make_node("Flatten", ["p"], ["q"])]
    nodes.append(helper.make_node("MatMul", ["q", "f"], ["y"]))
    weights = [numpy_helper.from_array(array, name) for name, array in data.items()]
    return model(nodes, weights, [4, 3, 9, 9], [4, 10], "y")


NORM = {"scale": 1.0, "bias": 0.1, "mean": 0.0, "var": 1.0}


def model(nodes: list[Any], weights: list[Any], given: list[int], made: list[int], result: str) -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, made)]
    graph = helper.make_graph(nodes, "model", inputs, outputs, weights)
    made_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made_model.SerializeToString())


def compiled(source: bytes, states: str = "none", precision: str = "f32", **train: Any) -> memc.Compilation:
    # Workspaces that depend on what is free may sum in another order.
    how: dict[str, Any] = {"offload_states": states, "precision": precision, "workspace": "none"}
    return memc.compile(onnx.load_model_from_string(source), train=memc.BuildGradient(**train), **how)


def trace(step: TrainingStep, steps: int = 20, huge: int | None = None) -> list[bytes]:
    """The bits of the losses, and then of all states. The inputs of the step `huge` have gradients that are not finite."""
    rng = np.random.default_rng(7)
    given, labels = step.input("x").shape, step.inputs[1].shape
    found = []
    for number in range(steps):
        x = rng.standard_normal(given).astype(np.float32) * np.float32(1e37 if number == huge else 1)
        found.append(np.float64(step(x, rng.integers(0, 10, labels))).tobytes())
    return [*found, *(array.tobytes() for _, array in sorted(step.state().items()))]


def load(compilation: memc.Compilation) -> TrainingStep:
    step = compilation.load()
    assert isinstance(step, TrainingStep)
    return step


CASES: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "momentum": (perceptron(), "f32", {"momentum": 0.9}),
    "nesterov": (perceptron(), "f32", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (perceptron(), "f32", {"optimizer": "adam"}),
    "tied": (perceptron(tied=True), "f32", {"optimizer": "adam"}),
    "clipped": (perceptron(), "f32", {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5}),
    "accumulated": (perceptron(), "f32", {"optimizer": "adam", "accumulate": 3}),
    "scaled": (perceptron(), "f16", {"optimizer": "adam", "loss_scale": "dynamic"}),
    "half": (perceptron(), "bf16", {"momentum": 0.9}),
    "convolutions": (convolutions(), "f32", {"optimizer": "adamw"}),
}


@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_resident_states(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, precision, train = CASES[case]
    resident, moved = (compiled(source, states, precision, **train) for states in ("none", "all"))
    assert not host_params(resident.module.main)
    assert moved.report.host_bytes >= WIDTH * WIDTH * 4 and len(host_params(moved.module.main)) >= 1
    assert moved.report.weights_bytes + moved.report.host_bytes == resident.report.weights_bytes
    assert moved.report.peak_bytes < resident.report.peak_bytes
    check_copy_races(moved.module)
    huge = 3 if case == "scaled" else None
    expected = trace(load(resident), huge=huge)
    for times in ("thread", "at-start", "at-done", "random:1", "random:2"):
        monkeypatch.setenv("MEMC_COPIES", times)
        assert trace(load(moved), huge=huge) == expected, times


def test_a_skipped_step_changes_no_state(tmp_path: Path) -> None:
    source, precision, train = CASES["scaled"]
    step = load(compiled(source, "all", precision, **train))
    trace(step, 2)
    before = step.state()
    trace(step, 1, huge=0)
    after = step.state()
    assert after["loss_scale"] == before["loss_scale"] / 2
    others = [name for name in before if not name.startswith("loss_scale")]
    assert others and all(after[name].tobytes() == before[name].tobytes() for name in others)


def test_saved_states_go_on_in_the_other_kind(tmp_path: Path) -> None:
    source, precision, train = CASES["adam"]
    resident, moved = (compiled(source, states, precision, **train) for states in ("none", "all"))
    for first, second in ((resident, moved), (moved, resident), (moved, moved)):
        given, other = load(first), load(second)
        trace(given, 3)
        given.save(tmp_path / "state.safetensors")
        other.restore(tmp_path / "state.safetensors")
        assert trace(other, 4) == trace(given, 4)
        assert trace(given.session(), 2) == trace(other.session(), 2)
