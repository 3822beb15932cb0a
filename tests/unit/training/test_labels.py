# SPDX-License-Identifier: Apache-2.0
"""Labels of training steps: checked on the host and on the device, of any type of integers, ignored, or probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.core import Array
from memc.ir.errors import UsageError
from memc.passes.training.build_gradient import BuildGradient
from memc.runtime.execute import labels as checks

RNG = np.random.default_rng(5)
W = RNG.normal(size=(4, 3)).astype(np.float32)


def linear(
    batch: int = 6, rest: tuple[int, ...] = (), loss: str | None = None, labels: Any = np.int64
) -> onnx.ModelProto:
    """y[n, :, ...] = W' x[n, :, ...], or a node `loss` of it and of the input t."""
    kernel = W.T.reshape(3, 4, *[1] * len(rest))
    shape = [batch, 4, *rest]
    first = helper.make_node("Conv", ["x", "w"], ["y"]) if rest else helper.make_node("MatMul", ["x", "w"], ["y"])
    nodes, infos = [first], [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if loss is not None:
        nodes.append(helper.make_node(loss, ["y", "t"], ["l"], ignore_index=7))
        infos.append(
            helper.make_tensor_value_info("t", helper.np_dtype_to_tensor_dtype(np.dtype(labels)), [batch, *rest])
        )
    graph = helper.make_graph(
        nodes,
        "g",
        infos,
        [helper.make_empty_tensor_value_info("l" if loss else "y")],
        [numpy_helper.from_array(kernel if rest else W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def stepper(source: onnx.ModelProto | None = None, **options: Any) -> memc.Executable:
    how = {name: options.pop(name) for name in ("precision", "opt_level") if name in options}
    return memc.compile(source or linear(), train=BuildGradient(**options), **how).load()


def data(batch: int = 6, rest: tuple[int, ...] = ()) -> Array:
    return RNG.normal(size=(batch, 4, *rest)).astype(np.float32)


def truth(x: Array, labels: Array, ignored: int = -100) -> tuple[float, Array]:
    """Mean cross entropy, and its gradient in W, sample by sample in f64."""
    rows = np.moveaxis(x, 1, -1).reshape(-1, 4).astype(np.float64)
    losses, gradient = [], np.zeros((4, 3))
    for row, label in zip(rows, labels.reshape(-1)):
        if label == ignored:
            continue
        z = row @ W
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        losses.append(-np.log(p[label]))
        gradient += np.outer(row, p - np.eye(3)[label])
    count = max(len(losses), 1)
    return sum(losses) / count, gradient / count


def gradient_of(found: dict[str, Array]) -> Array:
    g = found["w.grad"]
    return g if g.shape == (4, 3) else g.reshape(3, 4).T


BAD = {
    "below": (np.array([0, -1, 2, 1, 0, 1]), r"input labels\[1\]: expected a label from 0 to 2 .*, got -1;"),
    "above": (np.array([0, 1, 2, 1, 3, 1]), r"input labels\[4\]: expected a label from 0 to 2 .*, got 3;"),
    "many": (
        np.array([0, 1, 9, 1, 3, -100]),
        r"input labels\[2\]: .* or -100, which is ignored, got 9 \(and 1 more\);",
    ),
    "large": (np.array([0, 1, 2, 1, 2**62, 1]), r"input labels\[4\]: .* got 4611686018427387904;"),
    "narrow": (np.array([0, 1, 2, 1, -100, -99], np.int8), r"input labels\[5\]: .* got -99;"),
    "unsigned": (np.array([0, 1, 2, 1, 2**64 - 1, 0], np.uint64), r"input labels\[4\]: .* got 18446744073709551615;"),
    "list": ([0, 1, 2, 1, 3, 1], r"input labels\[4\]: .* got 3;"),
    "dlpack": (tvm_ffi.from_dlpack(np.array([0, 1, 2, 1, 3, 1])), r"input labels\[4\]: .* got 3;"),
    "strided": (np.array([0, 9, 1, 9, 2, 9, 1, 9, 3, 9, 1, 9])[::2], r"input labels\[4\]: .* got 3;"),
}


@pytest.fixture(scope="module")
def plain() -> memc.Executable:
    return stepper(optimizer="sgd")


@pytest.mark.parametrize("name", sorted(BAD))
def test_labels_on_the_host_are_checked_before_the_step(plain: memc.Executable, name: str) -> None:
    labels, message = BAD[name]
    before = plain.state()["w"]
    with pytest.raises(UsageError, match=message):
        plain(data(), labels)
    with pytest.raises(UsageError, match=message):
        plain.run_numpy({"x": data(), "labels": labels, "learning_rate": np.float32(1)})
    assert (plain.state()["w"] == before).all()


GOOD = np.array([0, 2, 1, 1, 2, 0])


@pytest.fixture(scope="module")
def gradients() -> memc.Executable:
    return stepper(optimizer="none")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_labels_of_every_type_of_integers(gradients: memc.Executable, dtype: str) -> None:
    step, x = gradients, data()
    loss, gradient = truth(x, GOOD)
    for labels in (GOOD.astype(dtype), tvm_ffi.from_dlpack(GOOD.astype(dtype)), GOOD.tolist()):
        found = step.run_numpy({"x": x, "labels": labels})
        assert found["loss"] == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(found["w.grad"], gradient, rtol=1e-4, atol=1e-6)


def test_labels_that_are_no_integers_or_have_another_shape_are_refused(plain: memc.Executable) -> None:
    for labels in (GOOD.astype(np.float32), GOOD.reshape(2, 3), GOOD[:5].tolist(), "012210", np.eye(3, dtype=np.int64)):
        with pytest.raises(UsageError, match=r"input labels: "):
            plain(data(), labels)


def test_numbers_to_be_met_may_be_integers() -> None:
    step = stepper(loss="mse", optimizer="none")
    x, labels = data(), RNG.integers(-3, 4, (6, 3)).astype(np.int16)
    found = step.run_numpy({"x": x, "labels": labels})
    assert found["loss"] == pytest.approx(((x.astype(np.float64) @ W - labels) ** 2).mean(), rel=1e-5)
    with pytest.raises(UsageError, match="expected labels that f32 holds, got 16777217"):
        step.run_numpy({"x": x, "labels": np.full((6, 3), 2**24 + 1)})


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "-O0": {"opt_level": 0},
    "halves": {"accumulate": 2},
    "thirds": {"accumulate": 3},
    "cheap": {"mirror": "cheap"},
    "min-cut": {"mirror": "min-cut"},
    "sublinear": {"mirror": "sublinear"},
    "bf16": {"precision": "bf16"},
    "f16": {"precision": "f16", "loss_scale": "128"},
}


@pytest.mark.parametrize("ignored, rest", [(1, ()), (255, (2, 3))], ids=["rows", "pixels"])
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_ignored_labels_do_not_count(name: str, ignored: int, rest: tuple[int, ...]) -> None:
    """Unevenly over the micro-batches, one of which has none that counts: as if they were one batch."""
    options = VARIANTS[name]
    parts = options.get("accumulate", 1)
    step = stepper(linear(6 // parts, rest), optimizer="none", ignore_index=ignored, **options)
    x, labels = data(6, rest), np.resize(np.array([0, 2, 1, 1, 2, 0, 2]), (6, *rest))
    labels[:3] = ignored
    loss, gradient = truth(x, labels, ignored)
    found = step.run_numpy({"x": x, "labels": labels})
    half = "precision" in options
    assert found["loss"] == pytest.approx(loss, rel=3e-2 if half else 1e-5)
    np.testing.assert_allclose(gradient_of(found), gradient, rtol=1e-4, atol=3e-2 if half else 1e-5)
    found = step.run_numpy({"x": x, "labels": np.full_like(labels, ignored)})
    assert found["loss"] == 0 and not found["w.grad"].any()
    with pytest.raises(UsageError, match=f"or {ignored}, which is ignored, got 3"):
        step.run_numpy({"x": x, "labels": np.full_like(labels, 3)})


@pytest.mark.parametrize("one_hot", [False, True])
def test_probabilities_as_labels(one_hot: bool) -> None:
    step, x = stepper(optimizer="none", labels="probabilities"), data()
    rows = np.eye(3)[GOOD] if one_hot else RNG.dirichlet(np.ones(3), 6)
    z = x.astype(np.float64) @ W
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    found = step.run_numpy({"x": x, "labels": rows.astype(np.float32)})
    assert found["loss"] == pytest.approx(-(rows * np.log(p)).sum() / 6, rel=1e-5)
    np.testing.assert_allclose(found["w.grad"], x.T @ (p - rows) / 6, rtol=1e-4, atol=1e-5)
    if one_hot:
        again = step.run_numpy({"x": x, "labels": rows.astype(np.int64)})
        assert again["loss"] == found["loss"]


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Labels are as if they were on a device, where nobody looks at them before the run."""
    with monkeypatch.context() as patched:
        patched.setattr(checks, "on_host", lambda value: None)
        yield


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_unchecked_labels_make_loss_and_gradient_nan(name: str) -> None:
    options = VARIANTS[name]
    step = stepper(linear(6 // options.get("accumulate", 1)), optimizer="none", **options)
    for label in (-1, 3, 99, -99, 2**40):
        found = step.run_numpy({"x": data(), "labels": np.array([0, label, 2, 1, -100, 0])})
        assert np.isnan(found["loss"]) and np.isnan(found["w.grad"]).all()


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_labels_checked_on_the_device_raise_with_the_loss_and_change_nothing(name: str) -> None:
    options = VARIANTS[name]
    step = stepper(linear(6 // options.get("accumulate", 1)), optimizer="adam", check_labels=True, **options)
    before = step.state()
    for labels, message in (
        (np.array([0, 2, 2, 1, 3, 0]), r"input labels\[4\]: expected a label from 0 to 2 .* got 3;"),
        (np.array([0, -1, 2, 1, -100, 5]), r"input labels\[1\]: .* got -1 \(and 1 more\);"),
    ):
        with pytest.raises(UsageError, match=message):
            step(data(), labels)
        after = step.state()
        assert after.keys() == before.keys() and all((after[key] == before[key]).all() for key in before)
    assert np.isfinite(step(data(), np.array([0, -100, 2, 1, -100, 0])))
    assert (step.state()["w"] != before["w"]).any() and step.state()["step"] == 1


def test_checking_on_the_device_returns_the_same_loss() -> None:
    x = data()
    plain, checked = (stepper(optimizer="sgd", check_labels=check) for check in (False, True))
    for _ in range(3):
        assert checked(x, GOOD) == pytest.approx(plain(x, GOOD), rel=1e-6)
    np.testing.assert_allclose(checked.state()["w"], plain.state()["w"], rtol=1e-5)
    found = checked.run_numpy({"x": x, "labels": GOOD, "learning_rate": np.float32(0.1)})
    assert list(found) == ["loss"]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_labels_of_a_model_that_is_a_loss_are_checked_too(kind: str, dtype: Any) -> None:
    x, labels = data(), np.array([0, 2, 1, 7, 2, 0])
    source = linear(loss=kind, labels=dtype)
    for exe in (stepper(source, optimizer="none"), memc.compile(source).load()):
        with pytest.raises(
            UsageError, match=r"input t\[2\]: expected a label from 0 to 2 or 7, which is ignored, got 5"
        ):
            exe.run_numpy({"x": x, "t": np.array([0, 2, 5, 7, 2, 0], np.uint8)})
        name = exe.outputs[0].name
        value = exe.run_numpy({"x": x, "t": labels.astype(np.int16)})[name]
        z = x.astype(np.float64) @ W
        picked = z[np.arange(6), np.where(labels == 7, 0, labels)] - np.log(np.exp(z).sum(1)) * (kind[0] == "S")
        assert value == pytest.approx(-picked[labels != 7].mean(), rel=1e-5)


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("kind", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_a_model_that_is_a_loss_agrees_with_its_gradient_about_labels(kind: str) -> None:
    x, source = data(), linear(loss=kind)
    step = stepper(source, optimizer="none")
    found = step.run_numpy({"x": x, "t": np.array([0, 2, 5, 7, 2, 0])})
    assert np.isnan(found["loss"]) and np.isnan(found["w.grad"]).all()
    assert np.isnan(memc.compile(source).load().run_numpy({"x": x, "t": np.array([0, 2, -1, 7, 2, 0])})["l"])
    found = step.run_numpy({"x": x, "t": np.full(6, 7)})
    assert found["loss"] == 0 and not found["w.grad"].any()
    checked = stepper(source, optimizer="sgd", check_labels=True)
    with pytest.raises(UsageError, match=r"input t\[2\]: .* got 5"):
        checked(x, np.array([0, 2, 5, 7, 2, 0]))


@pytest.mark.usefixtures("unseen")
def test_a_dynamic_loss_scale_does_not_move_for_labels_of_no_class() -> None:
    step, x = stepper(optimizer="sgd", precision="f16", check_labels=True), data() / 8
    assert np.isfinite(step(x, GOOD))
    before = step.state()
    assert before["loss_scale.good_steps"] == 1
    with pytest.raises(UsageError, match=r"input labels\[4\]: .* got 3;"):
        step(x, np.array([0, 2, 2, 1, 3, 0]))
    assert all((content == before[name]).all() for name, content in step.state().items())
    assert np.isfinite(step(x, GOOD)) and step.state()["loss_scale.good_steps"] == 2
