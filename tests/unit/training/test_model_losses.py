# SPDX-License-Identifier: Apache-2.0
"""Models whose result is a loss already train as they are. Against numpy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from memc.ir.core import Array
from memc.ir.errors import UnsupportedError, UsageError
from memc.passes.training.build_gradient import BuildGradient

from .test_losses import CLASSES, SIGMOIDS, TARGETS, W, X, cross_entropy, model, node, trained


def mean_of_squares() -> list[onnx.NodeProto]:
    return [
        node("Sub", ["z", "t"], ["d"]),
        node("Mul", ["d", "d"], ["q"]),
        node("ReduceMean", ["q"], ["y"], keepdims=0),
    ]


@pytest.mark.parametrize("options", [{}, {"loss": "output"}])
def test_a_model_whose_result_is_a_loss_trains_as_it_is(options: dict[str, str]) -> None:
    source = model([node("SoftmaxCrossEntropyLoss", ["z", "t"], ["y"], ignore_index=-100)], {"t": CLASSES})
    found, gradient, done = trained(source, {"x": X, "t": CLASSES}, **options)
    expected, slope = cross_entropy()
    assert found == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-6)
    said = done.report.training
    assert said is not None and said.loss == "output" and "is the loss" in said.of
    found, gradient, _ = trained(model(mean_of_squares(), {"t": TARGETS}), {"x": X, "t": TARGETS}, **options)
    distance = X.astype(np.float64) @ W - TARGETS
    assert found == pytest.approx((distance**2).mean(), rel=1e-5)
    np.testing.assert_allclose(gradient, X.T @ distance * 2 / 18, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_nodes_of_losses_have_the_gradient_of_their_formula(kind: str, reduction: str, weighted: bool) -> None:
    weights = np.array([0.5, 2, 1.5], np.float32)
    inputs = ["s", "t"] + (["class_weights"] if weighted else [])
    lead = node("Identity" if kind[0] == "S" else "LogSoftmax", ["z"], ["s"])
    last = node(kind, inputs, ["y"], reduction=reduction, ignore_index=-100)
    source = model([lead, last], {"t": CLASSES}, **({"class_weights": weights} if weighted else {}))
    found, gradient, _ = trained(source, {"x": X, "t": CLASSES}, frozen=("class_*",) if weighted else ())

    def loss(w: Array) -> float:
        z = X.astype(np.float64) @ w
        kept = np.flatnonzero(CLASSES != -100)
        factor = weights[CLASSES[kept]].astype(np.float64) if weighted else np.ones(len(kept))
        each = np.log(np.exp(z).sum(1))[kept] - z[kept, CLASSES[kept]]
        return float((each * factor).sum() / (factor.sum() if reduction == "mean" else 1))

    w = W.astype(np.float64)
    assert found == pytest.approx(loss(w), rel=1e-5)
    for place in np.ndindex(W.shape):
        step = np.zeros_like(w)
        step[place] = 1e-5
        assert gradient[place] == pytest.approx((loss(w + step) - loss(w - step)) / 2e-5, rel=1e-3, abs=1e-5)


def test_a_result_of_one_element_can_be_the_loss_and_what_cannot_is_refused() -> None:
    nodes = mean_of_squares()
    nodes[-1] = node("ReduceMean", ["q"], ["y"], keepdims=1)
    found, _, _ = trained(model(nodes, {"t": TARGETS}), {"x": X, "t": TARGETS}, loss="output")
    assert found == pytest.approx(((X.astype(np.float64) @ W - TARGETS) ** 2).mean(), rel=1e-5)
    with pytest.raises(
        UnsupportedError, match=r"loss output: expected a result of one float to minimize, got f32\[6,3\]"
    ):
        trained(model([node("Identity", ["z"], ["y"])]), {}, loss="output")
    with pytest.raises(UnsupportedError, match="a result that is the loss itself is trained with loss output"):
        trained(model(mean_of_squares(), {"t": TARGETS}), {}, loss="mse")
    with pytest.raises(UsageError, match="loss bce has no label to ignore"):
        trained(model(SIGMOIDS["plain"]), {}, loss="bce", ignore_index=2)
    for wrong in (1.5, True, "1", 2**63):
        with pytest.raises(UsageError, match="build-gradient: ignore_index: expected a whole number"):
            BuildGradient(ignore_index=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="loss mse takes no labels of probabilities"):
        trained(model(SIGMOIDS["plain"]), {}, loss="mse", labels="probabilities")


@pytest.mark.parametrize(
    "options", [{"accumulate": 2}, {"mirror": "cheap"}, {"mirror": "min-cut"}, {"mirror": "sublinear"}]
)
def test_a_loss_of_the_model_accumulates_and_recomputes(options: dict[str, Any]) -> None:
    source = model(mean_of_squares(), {"t": TARGETS})
    twice = options.get("accumulate", 1)
    feeds = {"x": np.tile(X, (twice, 1)), "t": np.tile(TARGETS, (twice, 1))}
    found, gradient, _ = trained(source, feeds, **options)
    distance = X.astype(np.float64) @ W - TARGETS
    assert found == pytest.approx((distance**2).mean(), rel=1e-5)
    np.testing.assert_allclose(gradient, X.T @ distance * 2 / 18, rtol=1e-4, atol=1e-6)
