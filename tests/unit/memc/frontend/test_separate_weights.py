# SPDX-License-Identifier: Apache-2.0
"""Tensors that an exporter joined for their equal contents are trained apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import memc
from memc.frontend.onnx import import_onnx
from memc.frontend.onnx.separate_weights import separate
from memc.ir.evaluate import evaluate
from memc.passes.training.build_gradient import BuildGradient

ONES, ZEROS = np.ones(3, np.float32), np.zeros(3, np.float32)
X = np.random.default_rng(0).normal(2, 3, (4, 3, 5)).astype(np.float32)

# As PyTorch writes two batch normalizations that were never trained: stored are `a_weight` and `a_bias` alone.
NAMED = """
    a_mean = Identity(a_bias) a_var = Identity(a_weight)
    b_weight = Identity(a_weight) b_bias = Identity(a_bias) b_mean = Identity(b_bias) b_var = Identity(b_weight)
    h = BatchNormalization(x, a_weight, a_bias, a_mean, a_var)
    y = BatchNormalization(h, b_weight, b_bias, b_mean, b_var)
"""
# The same after a tool has taken the Identity nodes out.
UNNAMED = """
    h = BatchNormalization(x, a_weight, a_bias, a_bias, a_weight)
    y = BatchNormalization(h, a_weight, a_bias, a_bias, a_weight)
"""


def model(body: str, **stored: np.ndarray) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[4,3,5] x) => (float[4,3,5] y) {{ {body} }}'
    made = onnx.parser.parse_model(text)
    stored = stored or {"a_weight": ONES, "a_bias": ZEROS}
    made.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in stored.items())
    return made


def weights_of(made: onnx.ModelProto) -> list[str]:
    return sorted(t.name for t in made.graph.initializer)


def test_a_stored_tensor_for_each_name() -> None:
    given = model(NAMED)
    made = separate(given)
    assert weights_of(made) == sorted(f"{n}_{what}" for n in "ab" for what in ("weight", "bias", "mean", "var"))
    assert [n.op_type for n in made.graph.node] == ["BatchNormalization"] * 2
    assert weights_of(given) == ["a_bias", "a_weight"]
    x = {"x": X}
    np.testing.assert_array_equal(evaluate(import_onnx(made), x)["y"], evaluate(import_onnx(given), x)["y"])


def test_statistics_are_no_weights_too() -> None:
    made = separate(model(UNNAMED))
    names = ["h.running_mean", "h.running_var", "y.running_mean", "y.running_var"]
    assert weights_of(made) == ["a_bias", "a_weight", *names]
    assert [list(n.input) for n in made.graph.node] == [
        ["x", "a_weight", "a_bias", *names[:2]],
        ["h", "a_weight", "a_bias", *names[2:]],
    ]


def test_the_name_of_a_separate_statistic_is_unused() -> None:
    body = "y = BatchNormalization(x, w, b, b, v)"
    made = separate(model(body, w=ONES, b=ZEROS, v=ONES, **{"y.running_mean": ZEROS}))
    assert list(made.graph.node[0].input) == ["x", "w", "b", "y.running_mean.1", "v"]


def test_a_layer_used_twice_keeps_its_statistics() -> None:
    body = "h = BatchNormalization(x, w, b, m, v) y = BatchNormalization(h, w, b, m, v)"
    given = model(body, w=ONES, b=ZEROS, m=ZEROS, v=ONES)
    assert separate(given) is given


def test_names_of_integers_inputs_and_outputs_stay() -> None:
    body = "i = Identity(shape) h = Identity(x) r = Reshape(h, i) y = Identity(w)"
    given = model(body, w=np.zeros((4, 3, 5), np.float32), shape=np.array([4, 15]))
    assert separate(given) is given


def test_a_tensor_declared_as_input_is_declared_again() -> None:
    given = model("v = Identity(w) h = Mul(x, w) y = Mul(h, v)", w=np.ones((4, 3, 5), np.float32))
    given.ir_version = 3
    given.graph.input.add().CopyFrom(given.graph.input[0])
    given.graph.input[1].name = "w"
    made = separate(given)
    assert [i.name for i in made.graph.input] == ["x", "w", "v"]
    onnx.checker.check_model(made)


def test_a_step_moves_each_and_the_model_exports_them(tmp_path: Path) -> None:
    step = memc.compile(model(NAMED), train=BuildGradient(loss="mse"), opt_level=1).load()
    step.learning_rate = 0.5
    step(X, X)
    state = step.state()
    mean, variance = X.mean((0, 2)), X.var((0, 2), ddof=1)
    np.testing.assert_allclose(state["a_mean"], 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(state["a_var"], 0.9 + 0.1 * variance, rtol=1e-5)
    np.testing.assert_allclose(state["b_mean"], 0, atol=1e-6)
    # The second layer has x^ = (x - mean) / deviation as its input: loss = mean (w x^ + b - x)^2, at w = 1 and b = 0.
    hat = ((X - mean[:, None]) / X.std((0, 2))[:, None]).astype(np.float64)
    slope = 2 * (hat - X) / X.size
    np.testing.assert_allclose(state["b_bias"], -0.5 * slope.sum((0, 2)), rtol=1e-4)
    np.testing.assert_allclose(state["b_weight"], 1 - 0.5 * (slope * hat).sum((0, 2)), rtol=1e-4)
    step.export_onnx(tmp_path / "trained.onnx")
    exported = onnx.load(tmp_path / "trained.onnx")
    onnx.checker.check_model(exported)
    for tensor in exported.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), state[tensor.name])
