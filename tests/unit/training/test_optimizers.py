# SPDX-License-Identifier: Apache-2.0
"""Every optimizer against its formula in f64, parameter groups and clipping, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.errors import UsageError
from memc.ir.ops import dynamic_code
from memc.passes.training.build_gradient import BuildGradient

from .linear_step import RATE, B, T, W, X, compiled, mse

STEPS = 20

Rule = Callable[[np.ndarray, np.ndarray, dict[str, Any], int], np.ndarray]
"""A weight's next content from it, its gradient, its states and the number of the step."""


def sgd(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    return w - RATE * g


def rmsprop(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    g = g + 0.1 * w
    s["square"] = 0.9 * s.get("square", 0) + 0.1 * g * g
    s["mean"] = 0.9 * s.get("mean", 0) + 0.1 * g
    s["buffer"] = 0.5 * s.get("buffer", 0) + g / (np.sqrt(s["square"] - s["mean"] ** 2) + 1e-3)
    return w - RATE * s["buffer"]


def adagrad(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    s["sum"] = s.get("sum", 0.3) + g * g
    return w - RATE / (1 + (t - 1) * 0.2) * g / (np.sqrt(s["sum"]) + 1e-10)


def adadelta(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    s["square"] = 0.9 * s.get("square", 0) + 0.1 * g * g
    delta = np.sqrt(s.get("delta", 0) + 1e-6) / np.sqrt(s["square"] + 1e-6) * g
    s["delta"] = 0.9 * s.get("delta", 0) + 0.1 * delta**2
    return w - RATE * delta


def moments(g: np.ndarray, s: dict[str, Any], t: int) -> tuple[np.ndarray, np.ndarray]:
    """The corrected means of Adam."""
    s["first"] = 0.9 * s.get("first", 0) + 0.1 * g
    s["second"] = 0.999 * s.get("second", 0) + 0.001 * g * g
    return s["first"] / (1 - 0.9**t), s["second"] / (1 - 0.999**t)


def amsgrad(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    first, second = moments(g, s, t)
    s["largest"] = np.maximum(s.get("largest", 0), s["second"])
    return w - RATE * first / (np.sqrt(s["largest"] / (1 - 0.999**t)) + 1e-8)


def adamax(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    s["first"] = 0.9 * s.get("first", 0) + 0.1 * g
    s["largest"] = np.maximum(0.999 * s.get("largest", 0), np.abs(g) + 1e-8)
    return w - RATE / (1 - 0.9**t) * s["first"] / s["largest"]


def nadam(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    now, coming = (0.9 * (1 - 0.5 * 0.96 ** (n * 0.004)) for n in (t, t + 1))
    s["product"] = s.get("product", 1.0) * now
    s["first"] = 0.9 * s.get("first", 0) + 0.1 * g
    s["second"] = 0.999 * s.get("second", 0) + 0.001 * g * g
    deviation = np.sqrt(s["second"] / (1 - 0.999**t)) + 1e-8
    w = w - RATE * (1 - now) / (1 - s["product"]) * g / deviation
    return w - RATE * coming / (1 - s["product"] * coming) * s["first"] / deviation


def radam(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    first, _ = moments(g, s, t)
    w = w * (1 - RATE * 0.1)
    most = 2 / (1 - 0.999) - 1
    length = most - 2 * t * 0.999**t / (1 - 0.999**t)
    if length <= 5:
        return w - RATE * first
    root = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return w - RATE * first * root * np.sqrt(1 - 0.999**t) / (np.sqrt(s["second"]) + 1e-8)


def adafactor(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    share, epsilon = t**-0.8, np.finfo(np.float32).eps
    scale = max(1e-3, np.sqrt((w**2).mean())) * min(RATE, t**-0.5)
    if w.ndim > 1:
        s["rows"] = s.get("rows", 0) * (1 - share) + share * (g * g).mean(-1, keepdims=True)
        s["columns"] = s.get("columns", 0) * (1 - share) + share * (g * g).mean(-2, keepdims=True)
        variance = s["rows"] * s["columns"] / max(s["rows"].mean(), epsilon)
    else:
        s["variance"] = s.get("variance", 0) * (1 - share) + share * g * g
        variance = s["variance"]
    direction = g / np.sqrt(np.maximum(variance, epsilon**2))
    return w * (1 - RATE * 0.1) - scale * direction / max(1, np.sqrt((direction**2).mean()))


def lion(w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int) -> np.ndarray:
    old = s.get("mean", 0)
    s["mean"] = 0.99 * old + 0.01 * g
    return w * (1 - RATE * 0.1) - RATE * np.sign(0.9 * old + 0.1 * g)


CASES: dict[str, tuple[Rule, dict[str, Any]]] = {
    "rmsprop": (
        rmsprop,
        {"momentum": 0.5, "centered": True, "alpha": 0.9, "epsilon": 1e-3, "weight_decay": 0.1},
    ),
    "adagrad": (adagrad, {"lr_decay": 0.2, "initial_accumulator": 0.3}),
    "adadelta": (adadelta, {}),
    "adam": (amsgrad, {"amsgrad": True}),
    "adamax": (adamax, {}),
    "nadam": (nadam, {}),
    "radam": (radam, {"weight_decay": 0.1, "decoupled": True}),
    "adafactor": (adafactor, {"weight_decay": 0.1}),
    "lion": (lion, {"weight_decay": 0.1}),
}


def follow(step: Any, rule: Rule, gradients: Callable[..., list[np.ndarray]] = lambda *g: list(g)) -> None:
    """As many steps by the rule in f64: losses and weights agree."""
    weights, states = [W.astype(np.float64), B.astype(np.float64)], [{}, {}]
    for t in range(1, STEPS + 1):
        loss, *found = mse(*weights)
        assert step(X, T) == pytest.approx(loss, rel=2e-5)
        weights = [rule(w, g, s, t) for w, g, s in zip(weights, gradients(*found), states)]
    np.testing.assert_allclose(step.state()["W"], weights[0], rtol=5e-5, atol=2e-6)
    np.testing.assert_allclose(step.state()["b"], weights[1], rtol=5e-5, atol=2e-6)


@pytest.mark.parametrize("kind", CASES)
def test_optimizers(kind: str) -> None:
    rule, options = CASES[kind]
    follow(compiled(optimizer=kind, **options), rule)


def test_steps_along_the_gradient() -> None:
    follow(compiled(maximize=True), lambda w, g, s, t: w + RATE * g)


@pytest.mark.parametrize("kind, order", [("2", 2), ("inf", np.inf)])
def test_clipping(kind: str, order: float) -> None:
    """Elements first, and then the norm of what is left."""

    def clipped(*gradients: np.ndarray) -> list[np.ndarray]:
        found = [np.clip(g, -0.3, 0.3) for g in gradients]
        norm = np.linalg.norm(np.concatenate([g.ravel() for g in found]), order)
        return [g * min(1, 0.25 / (norm + 1e-6)) for g in found]

    follow(compiled(clip_norm=0.25, clip_norm_type=kind, clip_value=0.3), sgd, clipped)


def test_groups() -> None:
    """Options and rates of weights of some names; a rate that is an input of its own, too."""
    step = compiled(optimizer="adam", groups=("b: beta1=0.5 rate=0.5", "W: own-rate=true weight-decay=0.1"))
    assert [spec.name for spec in step.inputs][2:] == ["learning_rate", "learning_rate.2"]
    weights = [W.astype(np.float64), B.astype(np.float64)]
    states = [[0.0, 0.0], [0.0, 0.0]]
    for t in range(1, 6):
        loss, *gradients = mse(*weights)
        assert step(X, T, **{"learning_rate.2": 0.2}) == pytest.approx(loss, rel=1e-5)
        gradients[0] = gradients[0] + 0.1 * weights[0]
        for n, (beta, rate) in enumerate(((0.9, 0.2), (0.5, 0.5 * RATE))):
            g, (first, second) = gradients[n], states[n]
            states[n] = [beta * first + (1 - beta) * g, 0.999 * second + 0.001 * g * g]
            first, second = states[n][0] / (1 - beta**t), states[n][1] / (1 - 0.999**t)
            weights[n] = weights[n] - rate * first / (np.sqrt(second) + 1e-8)
    np.testing.assert_allclose(step.state()["W"], weights[0], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(step.state()["b"], weights[1], rtol=2e-5, atol=1e-6)
    with pytest.raises(UsageError, match="learning_rate.2: expected a"):
        step(X, T, **{"learning_rate.2": -1.0})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"groups": ("b",)}, r"group 'b': expected PATTERN\|PATTERN: NAME=VALUE"),
        ({"groups": ("b: beta1=0.5",)}, "expected options among rate, own-rate, momentum, .* got 'beta1=0.5'"),
        ({"groups": ("b: momentum=2",)}, "momentum: expected a number from 0 to below 1, got 2"),
        ({"groups": ("b: momentum=x",)}, "momentum: expected a number, got 'x'"),
        ({"groups": ("b: nesterov=1",)}, "nesterov: expected true or false, got '1'"),
        ({"groups": ("b: rate=-1",)}, "rate: expected a number from 0 on, got -1"),
        ({"clip_norm_type": "inf"}, "clip-norm-type inf needs clip-norm"),
        ({"optimizer": "lion", "epsilon": 1.0}, "lion: has no option epsilon; it takes beta1, beta2, weight-decay"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BuildGradient(**options)


def test_groups_name_weights() -> None:
    with pytest.raises(UsageError, match="no weight has a name like 'bias"):
        compiled(groups=("bias*: rate=0.1",))


WIDTH = 70
"""A matrix of 4,900 elements: 19 blocks and 36 elements."""


def wide() -> onnx.ModelProto:
    random = np.random.default_rng(3)
    weight = (random.normal(size=(WIDTH, WIDTH)) / 8).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, WIDTH])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.zeros(WIDTH, np.float32), "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def codes_of(x: np.ndarray, signed: bool) -> tuple[np.ndarray, np.ndarray]:
    """The nearest numbers of the format to x in blocks, as bytes, and the blocks' magnitudes."""
    known = dynamic_code.numbers(signed).astype(np.float64)
    rows = np.concatenate([x.ravel(), np.zeros(-x.size % 256)]).reshape(-1, 256)
    greatest = np.abs(rows).max(1, keepdims=True)
    return np.abs((rows / np.maximum(greatest, 1e-38))[..., None] - known).argmin(-1), greatest


def test_the_code_is_the_published_one() -> None:
    """256 numbers in order: the middles of equal intervals of each decade, 0 and 1."""
    for signed in (True, False):
        data = [0.0, 1.0]
        for place in range(7):
            edges = np.linspace(0.1, 1, 2 ** (place + (0 if signed else 1)) + 1)
            middles = 10.0 ** (place - 6) * (edges[:-1] + edges[1:]) / 2
            data += [*middles, *(-middles if signed else ())]
        assert len(data) == 256
        np.testing.assert_allclose(dynamic_code.numbers(signed), sorted(data), rtol=1e-6)


def test_adamw_with_8_bit_states() -> None:
    """Weights as the format's AdamW in numpy has them; states of a byte for each element, and small weights' in f32."""
    how = BuildGradient(loss="mse", optimizer="adamw8bit", weight_decay=0.1)
    step = memc.compile(wide(), train=how).load()
    step.learning_rate = 1e-2
    states = step.states
    assert [str(states[f"w.exp_avg{end}"].spec.dtype) for end in ("", ".absmax", "_sq", "_sq.absmax")] == [
        "u8",
        "f32",
    ] * 2
    assert states["w.exp_avg"].spec.shape == (20, 256) and str(states["b.exp_avg"].spec.dtype) == "f32"
    random = np.random.default_rng(4)
    x, target = (random.normal(size=(8, WIDTH)).astype(np.float32) for _ in range(2))
    w, b = (step.state()[name].astype(np.float64) for name in ("w", "b"))
    kept, mean = {True: None, False: None}, [np.zeros(WIDTH), np.zeros(WIDTH)]
    for t in range(1, 6):
        distance = x @ w + b - target
        assert step(x, target) == pytest.approx((distance**2).mean(), rel=1e-4)
        g = 2 * distance / distance.size
        found = {True: x.T.astype(np.float64) @ g, False: (x.T.astype(np.float64) @ g) ** 2}
        for signed, beta in ((True, 0.9), (False, 0.999)):
            old = 0.0
            if kept[signed] is not None:
                codes, greatest = kept[signed]
                old = (dynamic_code.numbers(signed)[codes] * greatest).ravel()[: w.size].reshape(w.shape)
            found[signed] = beta * old + (1 - beta) * found[signed]
            kept[signed] = codes_of(found[signed], signed)
        mean = [0.9 * mean[0] + 0.1 * g.sum(0), 0.999 * mean[1] + 0.001 * g.sum(0) ** 2]
        first, second = 1 - 0.9**t, 1 - 0.999**t
        w = w * (1 - 1e-3) - 1e-2 * found[True] / first / (np.sqrt(found[False] / second) + 1e-8)
        b = b * (1 - 1e-3) - 1e-2 * mean[0] / first / (np.sqrt(mean[1] / second) + 1e-8)
        now = step.state()
        np.testing.assert_allclose(now["b"], b, atol=2e-5)
        # An element whose code is decided by rounding may be the neighbour's.
        apart = np.abs(now["w.exp_avg"].astype(int) - kept[True][0])
        assert apart.max() <= 1 and (apart != 0).mean() < 0.01
        apart = np.abs(now["w.exp_avg_sq"].astype(int) - kept[False][0])
        assert apart.max() <= 1 and (apart != 0).mean() < 0.01
        np.testing.assert_allclose(now["w.exp_avg.absmax"], kept[True][1], rtol=2e-2, atol=1e-12)
        assert np.quantile(np.abs(now["w"] - w), 0.99) < 2e-4
