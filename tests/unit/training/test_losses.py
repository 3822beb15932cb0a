# SPDX-License-Identifier: Apache-2.0
"""What a training step minimizes: the scores before a sigmoid or softmax, or the model's own loss. Against numpy in f64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.core import Array
from memc.passes.training.build_gradient import BuildGradient

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 4)).astype(np.float32)
W = RNG.normal(size=(4, 3)).astype(np.float32)
CLASSES = np.array([0, 2, 1, 1, -100, 0])
TARGETS = RNG.integers(0, 2, (6, 3)).astype(np.float32)
node = helper.make_node


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Array] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    **weights: Array,
) -> onnx.ModelProto:
    """z = x w, and what `nodes` make of it."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in {"x": X, **(inputs or {})}.items()
    ]
    stored = {"w": W, **weights}
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["z"]), *nodes],
        "g",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def trained(source: onnx.ModelProto, feeds: dict[str, Array], **options: Any) -> tuple[float, Array, memc.Compilation]:
    """Loss, gradient of w, and the compilation."""
    how = {name: options.pop(name) for name in ("precision", "opt_level") if name in options}
    done = memc.compile(source, train=BuildGradient(optimizer="none", **options), **how)
    found = done.load().run_numpy(feeds)
    return float(found["loss"]), found["w.grad"], done


def cross_entropy(w: Array = W, labels: Array = CLASSES) -> tuple[float, Array]:
    z = X.astype(np.float64) @ w
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    kept = np.flatnonzero(labels != -100)
    loss = -np.log(p[kept, labels[kept]]).mean()
    g = np.zeros_like(p)
    g[kept] = p[kept]
    g[kept, labels[kept]] -= 1
    return float(loss), X.T @ g / len(kept)


def binary(w: Array = W, t: Array = TARGETS) -> tuple[float, Array]:
    z = X.astype(np.float64) @ w
    loss = np.maximum(z, 0) - z * t + np.log1p(np.exp(-np.abs(z)))
    small = np.exp(-np.abs(z))
    p, q = np.where(z > 0, 1, small) / (1 + small), np.where(z > 0, small, 1) / (1 + small)
    return float(loss.mean()), X.T @ ((1 - t) * p - t * q) / z.size


SIGMOIDS = {
    "plain": [node("Sigmoid", ["z"], ["y"])],
    "identity": [node("Sigmoid", ["z"], ["p"]), node("Identity", ["p"], ["y"])],
    "moved": [
        node("Unsqueeze", ["z", "axes"], ["z4"]),
        node("Sigmoid", ["z4"], ["p"]),
        node("Squeeze", ["p", "axes"], ["flat"]),
        node("Transpose", ["flat"], ["turned"], perm=[1, 0]),
        node("Transpose", ["turned"], ["back"], perm=[1, 0]),
        node("Reshape", ["back", "shape"], ["y"]),
    ],
    "cast": [
        node("Cast", ["z"], ["z64"], to=TensorProto.DOUBLE),
        node("Sigmoid", ["z64"], ["p"]),
        node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ],
    "dropout": [node("Sigmoid", ["z"], ["p"]), node("Dropout", ["p"], ["y"])],
    "flatten": [node("Sigmoid", ["z"], ["p"]), node("Flatten", ["p"], ["y"], axis=1)],
    "concat": [
        node("Slice", ["z", "zero", "one"], ["first"]),
        node("Slice", ["z", "low", "high"], ["rest"]),
        node("Sigmoid", ["first"], ["p1"]),
        node("Sigmoid", ["rest"], ["p2"]),
        node("Concat", ["p1", "p2"], ["y"], axis=1),
    ],
    "written": [
        node("Neg", ["z"], ["n"]),
        node("Exp", ["n"], ["e"]),
        node("Add", ["e", "unit"], ["s"]),
        node("Div", ["unit", "s"], ["y"]),
    ],
    "reciprocal": [
        node("Mul", ["z", "minus"], ["n"]),
        node("Exp", ["n"], ["e"]),
        node("Add", ["unit", "e"], ["s"]),
        node("Reciprocal", ["s"], ["y"]),
    ],
    "gate": [node("Sigmoid", ["z"], ["y"]), node("Mul", ["y", "z"], ["other"])],
}
TABLES = {
    "axes": ints(2, 3),
    "shape": ints(6, 3),
    "zero": ints(0, 0),
    "one": ints(6, 1),
    "low": ints(0, 1),
    "high": ints(6, 3),
    "class": ints(1),
    "unit": np.array(1, np.float32),
    "minus": np.array(-1, np.float32),
}


def tables(nodes: Sequence[onnx.NodeProto]) -> dict[str, Array]:
    """What the nodes read of the constants."""
    return {name: array for name, array in TABLES.items() if any(name in n.input for n in nodes)}


@pytest.mark.parametrize("loss", ["bce", "bce-with-logits"])
@pytest.mark.parametrize("name", sorted(SIGMOIDS))
@pytest.mark.parametrize("scale", [1, 60])
def test_a_sigmoid_before_bce_becomes_the_loss_of_logits(name: str, loss: str, scale: float) -> None:
    outputs = ("y", "other") if name == "gate" else ("y",)
    source = model(SIGMOIDS[name], outputs=outputs, **tables(SIGMOIDS[name]))
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(W * np.float32(scale), "w"))
    targets = TARGETS if scale == 1 else (X @ W > 0).astype(np.float32)
    found, gradient, done = trained(source, {"x": X, "labels": targets}, loss=loss)
    expected, slope = binary(W.astype(np.float64) * scale, targets)
    assert found == pytest.approx(expected, rel=2e-4, abs=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-6)
    assert done.report.training is not None and done.report.training.left_out == "sigmoid"
    assert "before sigmoid" in done.report.training.of and done.report.training.loss == loss


def test_a_sigmoid_elsewhere_stays() -> None:
    """A gate that the scores depend on, and a result that is no sigmoid."""
    gated = [node("Sigmoid", ["z"], ["g"]), node("Mul", ["g", "z"], ["h"]), node("Sigmoid", ["h"], ["y"])]
    found, _, _ = trained(model(gated), {"x": X, "labels": TARGETS}, loss="bce")
    z = X.astype(np.float64) @ W
    h = z / (1 + np.exp(-z))
    assert found == pytest.approx((np.logaddexp(0, h) - h * TARGETS).mean(), rel=1e-5)
    clipped = [node("Sigmoid", ["z"], ["p"]), node("Clip", ["p", "low", "high"], ["y"])]
    source = model(clipped, low=np.array(0.4, np.float32), high=np.array(0.6, np.float32))
    found, _, done = trained(source, {"x": X, "labels": TARGETS}, loss="bce", frozen=("low", "high"))
    p = np.clip(1 / (1 + np.exp(-z)), 0.4, 0.6)
    assert found == pytest.approx(-np.log(np.where(TARGETS == 1, p, 1 - p)).mean(), rel=1e-5)
    assert done.report.training is not None and done.report.training.left_out is None


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
def test_saturated_samples_leave_the_weights_finite(precision: str, clip_norm: float | None) -> None:
    train = BuildGradient(loss="bce", optimizer="adam", clip_norm=clip_norm)
    step = memc.compile(model(SIGMOIDS["plain"]), train=train, precision=precision).load()
    before = step.state()["w"]
    for _ in range(4):
        assert np.isfinite(step(40 * X, (X @ W > 0).astype(np.float32)))
    after = step.state()["w"]
    assert np.isfinite(after).all() and (after != before).any()


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("name", sorted(SIGMOIDS))
def test_half_precision_takes_the_logits_too(name: str, precision: str) -> None:
    """Casts stand between the ops of an activation that is written out."""
    outputs = ("y", "other") if name == "gate" else ("y",)
    source = model(SIGMOIDS[name], outputs=outputs, **tables(SIGMOIDS[name]))
    found, gradient, done = trained(source, {"x": X, "labels": TARGETS}, loss="bce", precision=precision)
    expected, slope = binary()
    assert found == pytest.approx(expected, rel=2e-2)
    np.testing.assert_allclose(gradient, slope, rtol=0.1, atol=2e-2)
    assert done.report.training is not None and done.report.training.left_out == "sigmoid"


SOFTMAXES = {
    "plain": [node("Softmax", ["z"], ["y"], axis=1)],
    "last axis": [node("Softmax", ["z"], ["y"], axis=-1)],
    "logarithm": [node("LogSoftmax", ["z"], ["y"], axis=1)],
    "logarithm written": [node("Softmax", ["z"], ["p"], axis=1), node("Log", ["p"], ["y"])],
    "moved": [
        node("Unsqueeze", ["z", "axes"], ["z4"]),
        node("Softmax", ["z4"], ["p"], axis=1),
        node("Squeeze", ["p", "axes"], ["flat"]),
        node("Identity", ["flat"], ["y"]),
    ],
    "turned": [
        node("Transpose", ["z"], ["turned"], perm=[1, 0]),
        node("Softmax", ["turned"], ["p"], axis=0),
        node("Transpose", ["p"], ["y"], perm=[1, 0]),
    ],
    "cast": [
        node("Cast", ["z"], ["z64"], to=TensorProto.DOUBLE),
        node("Softmax", ["z64"], ["p"], axis=1),
        node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ],
    "dropout": [node("Softmax", ["z"], ["p"], axis=1), node("Dropout", ["p"], ["y"])],
    "written": [
        node("ReduceMax", ["z", "class"], ["m"], keepdims=1),
        node("Sub", ["z", "m"], ["s"]),
        node("Exp", ["s"], ["e"]),
        node("ReduceSum", ["e", "class"], ["t"], keepdims=1),
        node("Div", ["e", "t"], ["y"]),
    ],
}


@pytest.mark.parametrize(
    "options", [{"accumulate": 2}, {"mirror": "cheap"}, {"mirror": "min-cut"}, {"mirror": "sublinear"}]
)
def test_scores_of_recomputed_and_accumulated_steps(options: dict[str, Any]) -> None:
    twice = options.get("accumulate", 1)
    feeds = {"x": np.tile(X, (twice, 1)), "labels": np.tile(CLASSES, twice)}
    hidden = [node("Relu", ["z"], ["h"]), node("Add", ["h", "z"], ["s"]), node("Softmax", ["s"], ["y"])]
    plain = [*hidden[:-1], node("Identity", ["s"], ["y"])]
    expected = trained(model(plain), {"x": X, "labels": CLASSES})
    found, gradient, done = trained(model(hidden), feeds, **options)
    assert found == pytest.approx(expected[0], rel=1e-5)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-4, atol=1e-6)
    assert done.report.training is not None and done.report.training.left_out == "softmax"


@pytest.mark.parametrize("name", sorted(SOFTMAXES))
def test_a_softmax_before_cross_entropy_is_left_to_the_loss(name: str) -> None:
    source = model(SOFTMAXES[name], **tables(SOFTMAXES[name]))
    found, gradient, done = trained(source, {"x": X, "labels": CLASSES})
    expected, slope = cross_entropy()
    assert found == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-6)
    said = done.report.training
    assert (
        said is not None
        and said.left_out in ("softmax", "log_softmax")
        and f"the scores before {said.left_out}" in said.of
    )


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("name", sorted(SOFTMAXES))
def test_half_precision_takes_the_scores_of_classes_too(name: str, precision: str) -> None:
    source = model(SOFTMAXES[name], **tables(SOFTMAXES[name]))
    found, gradient, done = trained(source, {"x": X, "labels": CLASSES}, precision=precision)
    expected, slope = cross_entropy()
    assert found == pytest.approx(expected, rel=2e-2)
    np.testing.assert_allclose(gradient, slope, rtol=0.1, atol=3e-2)
    assert done.report.training is not None and done.report.training.left_out in ("softmax", "log_softmax")


def test_a_softmax_over_another_axis_or_before_another_loss_stays() -> None:
    z = X.astype(np.float64) @ W
    other = np.exp(z) / np.exp(z).sum(0, keepdims=True)
    labels = np.array([0, 2, 1, 1, 2, 0])
    expected = np.log(np.exp(other).sum(1)).mean() - other[np.arange(6), labels].mean()
    found, _, done = trained(model([node("Softmax", ["z"], ["y"], axis=0)]), {"x": X, "labels": labels})
    assert found == pytest.approx(expected, rel=1e-5)
    assert done.report.training is not None and done.report.training.left_out is None
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    found, _, _ = trained(model(SOFTMAXES["plain"]), {"x": X, "labels": TARGETS}, loss="mse")
    assert found == pytest.approx(((p - TARGETS) ** 2).mean(), rel=1e-5)
    found, _, _ = trained(model(SOFTMAXES["plain"]), {"x": X, "labels": TARGETS}, loss="bce")
    assert found == pytest.approx(-np.log(np.where(TARGETS == 1, p, 1 - p)).mean(), rel=1e-5)


def test_the_softmax_that_the_loss_takes_over_is_not_computed() -> None:
    plain = memc.compile(model([node("Identity", ["z"], ["y"])]), train=BuildGradient(), opt_level=0, plan_only=True)
    soft = memc.compile(model(SOFTMAXES["plain"]), train=BuildGradient(), opt_level=0, plan_only=True)
    assert soft.report.ops == plain.report.ops and soft.report.arena_bytes == plain.report.arena_bytes
