# SPDX-License-Identifier: Apache-2.0
"""Models whose weights are Constant nodes are trained like those that store them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.frontend.onnx import import_onnx
from memc.ir.core import Role

RANDOM = np.random.default_rng(0)
W1, B1, W2 = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((4, 5), (5,), (5, 3)))
X = RANDOM.standard_normal((6, 4)).astype(np.float32)
LABELS = RANDOM.integers(0, 3, 6)
LOSS = memc.BuildGradient(loss="softmax-cross-entropy")


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("memc"), "propagate", True)
    caplog.set_level(logging.WARNING, "memc")


def model(constants: dict[str, np.ndarray], stored: dict[str, np.ndarray], ir_version: int = 9) -> onnx.ModelProto:
    """x w1 + b1 by a half, clipped below, by w2; the half and the bound are scalars, which are never trained."""
    nodes = [helper.make_node("Constant", [], [k], value=numpy_helper.from_array(v)) for k, v in constants.items()]
    nodes += [
        helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32(0.5))),
        helper.make_node("MatMul", ["x", "w1"], ["product"]),
        helper.make_node("Add", ["product", "b1"], ["sum"]),
        helper.make_node("Mul", ["sum", "half"], ["halved"]),
        helper.make_node("Relu", ["halved"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "w2"], ["y"]),
    ]
    declared = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4])]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 3])
    weights = [numpy_helper.from_array(v, k) for k, v in stored.items()]
    graph = helper.make_graph(nodes, "net", declared, [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=ir_version)


ALL = {"w1": W1, "b1": B1, "w2": W2}


@pytest.mark.parametrize("ir_version", [3, 9])
def test_they_are_trained_and_exported(ir_version: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = model(ALL, {}, ir_version)
    before = given.SerializeToString()
    onnx.save(given, tmp_path / "constants.onnx")
    steps = [
        memc.compile(source, train=LOSS, output=tmp_path / f"{number}.memc").load()
        for number, source in enumerate((given, str(tmp_path / "constants.onnx"), model({}, ALL)))
    ]
    assert "the model stores no weights: its 3 Constant nodes of floats with axes are trained" in caplog.text
    losses = [[step(X, LABELS) for _ in range(4)] for step in steps]
    assert losses[0] == losses[1] == losses[2] and losses[0][3] < losses[0][0]
    assert given.SerializeToString() == before
    steps[0].export_onnx(tmp_path / "trained.onnx")
    trained = onnx.load(tmp_path / "trained.onnx")
    onnx.checker.check_model(trained)
    found = {t.name: numpy_helper.to_array(t) for t in trained.graph.initializer}
    assert set(found) == set(ALL)
    for name, array in steps[2].state().items():
        np.testing.assert_array_equal(found[name], array)
        assert not np.array_equal(array, ALL[name])


def test_they_are_frozen_by_name() -> None:
    step = memc.compile(
        model(ALL, {}), train=memc.BuildGradient(loss="softmax-cross-entropy", frozen=("w1", "b1"))
    ).load()
    step(X, LABELS)
    assert set(step.state()) == {"w2"}
    assert not np.array_equal(step.state()["w2"], W2)


def test_beside_stored_weights_they_are_not_trained_and_told(caplog: pytest.LogCaptureFixture) -> None:
    module = import_onnx(model({"w1": W1, "b1": B1}, {"w2": W2}), trainable=True)
    assert {p.name for p in module.main.params_of(Role.WEIGHT)} - module.constants == {"w2"}
    assert "not trained, since they are Constant nodes beside stored weights: w1; store them" in caplog.text


def test_inference_says_nothing_of_them(caplog: pytest.LogCaptureFixture) -> None:
    (found,) = memc.compile(model(ALL, {})).load()(X).values()
    np.testing.assert_allclose(found, np.maximum((X @ W1 + B1) / 2, 0) @ W2, rtol=1e-5, atol=1e-5)
    assert caplog.text == ""
