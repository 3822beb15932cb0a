# SPDX-License-Identifier: Apache-2.0
"""Training steps end to end on the CPU, held against the optimizers' formulas in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.passes.training.build_gradient import BuildGradient

from .linear_step import OPTIONS, RATE, B, Reference, T, W, X, compiled, linear, mse


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
def test_optimizers(options: dict[str, object]) -> None:
    step = compiled(**options)
    reference = Reference(options["optimizer"], **{k: v for k, v in options.items() if k != "optimizer"})
    for _ in range(5):
        assert step(X, T) == pytest.approx(reference.step(), rel=1e-5)
    state = step.state()
    np.testing.assert_allclose(state["W"], reference.weights[0], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(state["b"], reference.weights[1], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_level_takes_the_same_steps(level: int) -> None:
    step, reference = compiled(level, momentum=0.5), Reference("sgd", momentum=0.5)
    for _ in range(3):
        assert step(X, T) == pytest.approx(reference.step(), rel=1e-5)
    np.testing.assert_allclose(step.state()["W"], reference.weights[0], rtol=1e-5)


def test_micro_batches_give_the_gradient_of_the_whole() -> None:
    step = compiled(batch=2, accumulate=2)
    assert [spec.shape for spec in step.inputs[:2]] == [(4, 3), (4, 2)]
    reference = Reference("sgd")
    for _ in range(3):
        assert step(X, T) == pytest.approx(reference.step(), rel=1e-5)


def test_gradients_alone() -> None:
    train = BuildGradient(loss="mse", optimizer="none")
    found = memc.compile(linear(), dims={"batch": 4}, train=train).load()(x=X, labels=T)
    loss, of_w, of_b = mse(W.astype(np.float64), B.astype(np.float64))
    assert float(found["loss"]) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(found["W.grad"], of_w, rtol=1e-4)
    np.testing.assert_allclose(found["b.grad"], of_b, rtol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
def test_other_results_are_returned_on_request(parts: int) -> None:
    """Those of micro-batches along the batch's axis, or one that scalars get; they are of the weights before the update."""
    model = linear()
    model.graph.node.append(helper.make_node("Tanh", ["h"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 2]))
    model.graph.node.append(helper.make_node("ReduceMax", ["h"], ["most"], keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("most", TensorProto.FLOAT, []))
    how = BuildGradient(loss="mse", keep_results=True, accumulate=parts)
    step = memc.compile(model, dims={"batch": 4 // parts}, train=how).load()
    found = step(X, T)
    assert float(found["loss"]) == pytest.approx(mse(W.astype(np.float64), B.astype(np.float64))[0], rel=1e-5)
    np.testing.assert_allclose(found["z"], np.tanh(X @ W), rtol=1e-5)
    each = (X @ W).reshape(parts, -1).max(1)
    np.testing.assert_allclose(found["most"], each if parts > 1 else each[0], rtol=1e-5)
    model.graph.output[1].name = model.graph.node[2].output[0] = "loss"
    with pytest.raises(UsageError, match="result 'loss' has a name that the step needs"):
        memc.compile(model, dims={"batch": 4}, train=BuildGradient(loss="mse", keep_results=True))


def test_frozen_weights_stay() -> None:
    step = compiled(frozen=("W",))
    before, _ = step(X, T), step(X, T)
    assert set(step.states) == {"b"}
    assert step(X, T) < before


def test_updates_take_no_memory_beside_the_states() -> None:
    done = memc.compile(linear(), dims={"batch": 4}, train=BuildGradient(loss="mse", momentum=0.9), plan_only=True)
    states = {p for p in done.module.main.params if p.role is not None and p.role.value == "state"}
    updated = done.module.main.returns[1:]
    assert {v.root for v in updated} == states and len(states) == 4


def test_an_artifact_written_anew_is_loaded_anew(tmp_path: Path) -> None:
    sizes = []
    for kind in ("sgd", "adam"):
        done = memc.compile(
            linear(), tmp_path / "step.memc", dims={"batch": 4}, train=BuildGradient(loss="mse", optimizer=kind)
        )
        sizes.append(len(done.load().state()))
    assert sizes == [2, 7]


def test_options_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="no weight has a name like 'conv"):
        compiled(frozen=("conv*",))
    with pytest.raises(UsageError, match="no weight has a name like 'bias"):
        compiled(weight_decay=0.1, no_decay=("b", "bias*"))
    with pytest.raises(UsageError, match="no result is called 'z'; expected one of y"):
        compiled(output="z")
    with pytest.raises(UsageError, match="accumulate: expected a whole number from 1 to 65536, got 0"):
        BuildGradient(accumulate=0)
    with pytest.raises(UsageError, match="nothing to train: result `y` depends on no weight that is not frozen"):
        compiled(frozen=("*",))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"momentum": -1.0}, "momentum: expected a number from 0 to below 1, got -1"),
        ({"weight_decay": float("nan")}, "weight_decay: expected a finite number, got nan"),
        ({"optimizer": "adam", "beta2": 1.0}, "beta2: expected a number from 0 to below 1, got 1"),
        ({"nesterov": True}, "nesterov needs a momentum"),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "adam: has no option momentum; it takes weight-decay, no-decay, beta1, beta2",
        ),
        ({"beta1": 0.5}, "sgd: has no option beta1; it takes momentum, nesterov, weight-decay"),
        ({"optimizer": "none", "momentum": 0.9}, "none: has no option momentum; it takes no options"),
    ],
)
def test_options_of_optimizers(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BuildGradient(**options)  # type: ignore[arg-type]


def test_names_that_training_needs() -> None:
    model = linear()
    model.graph.node[0].input[0] = model.graph.input[0].name = "labels"
    with pytest.raises(UnsupportedError, match="training needs the name `labels` for an input"):
        memc.compile(model, dims={"batch": 4}, train=BuildGradient(loss="mse"))


def test_an_artifact_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="expected a model, got a folder"):
        memc.compile(tmp_path)


def test_arrays_by_name() -> None:
    found = compiled().run_numpy({"x": X, "labels": T, "learning_rate": np.float32(RATE)})
    assert list(found) == ["loss"] and found["loss"].shape == ()
    assert found["loss"] == pytest.approx(mse(W.astype(np.float64), B.astype(np.float64))[0], rel=1e-5)


def test_what_the_model_makes_of_constants_is_not_trained() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["initial"]),
        helper.make_node("Constant", [], ["mask"], value=numpy_helper.from_array(np.ones((4, 40), np.float32))),
        helper.make_node("Add", ["x", "initial"], ["sum"]),
        helper.make_node("Mul", ["sum", "mask"], ["masked"]),
        helper.make_node("Mul", ["masked", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "constants",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 40])],
        [numpy_helper.from_array(np.array([4, 40]), "shape"), numpy_helper.from_array(np.ones(40, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    assert memc.compile(model, train=BuildGradient(loss="mse"), opt_level=1).load().states.keys() == {"w"}
