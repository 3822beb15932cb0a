# SPDX-License-Identifier: Apache-2.0
"""Dropout in training steps: which masks are drawn, when, and that none is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.frontend.onnx import import_onnx
from memc.ir.core import Role, Value
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.evaluate import evaluate
from memc.ir.types import DType, TensorType
from memc.passes.order.problem import order_problem, ordered_ops
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.step_builder import DRAWS

from ..ir.ops.gradients.conftest import finite_differences

RNG = np.random.default_rng(2)
WIDTH, RATIO = 2000, 0.3


def model_of(
    nodes: list[onnx.NodeProto],
    x: list[int | str],
    y: list[int | str],
    weights: dict[str, np.ndarray],
    opset: int = 17,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", dtype, x)],
        [helper.make_tensor_value_info("y", dtype, y)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def two_masks() -> onnx.ModelProto:
    """y = Dropout(x + w1) + Dropout(x + w2): for x = 0, weights 1 and labels 0 each gradient is zero where its mask is."""
    nodes = [
        helper.make_node("Add", ["x", "w1"], ["s1"]),
        helper.make_node("Add", ["x", "w2"], ["s2"]),
        helper.make_node("Dropout", ["s1", "ratio"], ["d1"], name="first"),
        helper.make_node("Dropout", ["s2", "ratio"], ["d2"], name="second"),
        helper.make_node("Add", ["d1", "d2"], ["y"]),
    ]
    ones = np.ones(WIDTH, np.float32)
    weights = {"w1": ones, "w2": ones, "ratio": np.array(RATIO, np.float32)}
    return model_of(nodes, ["batch", WIDTH], ["batch", WIDTH], weights)


def masks(batch: int = 1, **options: object) -> Callable[[], dict[str, np.ndarray]]:
    """A step of `two_masks` that returns loss and gradients."""
    how = BuildGradient(loss="mse", optimizer="none", **options)  # type: ignore[arg-type]
    step = memc.compile(two_masks(), dims={"batch": batch}, train=how).load()
    zeros = np.zeros((batch * how.accumulate, WIDTH), np.float32)
    return lambda: step(x=zeros, labels=zeros)


def network(dtype: type = np.float32) -> onnx.ModelProto:
    """Two dropouts between three matrix products."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Dropout", ["b", "ratio", "training"], ["c"], name="first"),
        helper.make_node("MatMul", ["c", "w2"], ["d"]),
        helper.make_node("Sigmoid", ["d"], ["e"]),
        helper.make_node("Dropout", ["e", "ratio", "training"], ["f"], name="second"),
        helper.make_node("MatMul", ["f", "w3"], ["y"]),
    ]
    draw = np.random.default_rng(5).normal
    weights = {f"w{i + 1}": draw(size=size).astype(dtype) / 2 for i, size in enumerate([(6, 8), (8, 8), (8, 3)])}
    weights |= {"ratio": np.array(RATIO, dtype), "training": np.array(False)}
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model_of(nodes, ["batch", 6], ["batch", 3], weights, dtype=element)


X = RNG.normal(size=(4, 6)).astype(np.float32)
LABELS = np.array([0, 2, 1, 1])


def trained(level: int = 2, batch: int = 4, **options: object) -> memc.Executable:
    step = memc.compile(network(), dims={"batch": batch}, train=BuildGradient(**options), opt_level=level).load()  # type: ignore[arg-type]
    step.learning_rate = 0.1
    return step


def test_masks_of_steps_and_streams_are_independent() -> None:
    step = masks()
    kept = [found[name] != 0 for found in (step(), step(), step()) for name in ("w1.grad", "w2.grad")]
    deviation = (RATIO * (1 - RATIO) / WIDTH) ** 0.5
    for mask in kept:
        assert abs(mask.mean() - (1 - RATIO)) < 5 * deviation
    for number, one in enumerate(kept):
        for other in kept[:number]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / WIDTH**0.5


def test_mean_and_variance_of_what_is_kept() -> None:
    """Of x = 1 dropout makes a mean of 1 and a variance of r / (1 - r)."""
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Dropout", ["s"], ["y"], ratio=RATIO)]
    model = model_of(nodes, [1, WIDTH], [1, WIDTH], {"w": np.ones(WIDTH, np.float32)}, opset=10)
    step = memc.compile(model, train=BuildGradient(loss="mse", optimizer="none")).load()
    zeros = np.zeros((1, WIDTH), np.float32)
    # loss = mean(d^2) and gradient = 2 d^2 / n for d = dropout(1).
    squares = np.stack([step(x=zeros, labels=zeros)["w.grad"] * WIDTH / 2 for _ in range(20)])
    values = np.sqrt(squares)
    np.testing.assert_allclose(np.unique(values), [0, 1 / (1 - RATIO)], rtol=1e-6)
    variance = RATIO / (1 - RATIO)
    assert abs(values.mean() - 1) < 5 * (variance / values.size) ** 0.5
    assert values.var() == pytest.approx(variance, rel=0.05)


def test_micro_batches_draw_masks_of_their_own() -> None:
    found = masks(accumulate=2)()["w1.grad"]
    one, both = np.unique(found[found > 0])[[0, -1]]
    half_kept = ((found > 0) & (found < both * 0.99)).mean()
    assert one < both and half_kept > 0.3  # One mask for both would keep each element twice or never.


def test_micro_batches_of_a_step_meet_none_of_the_next() -> None:
    alone, together = masks(), masks(accumulate=2)
    singles = [alone()["w1.grad"] for _ in range(4)]
    for first in (0, 2):
        expected = (singles[first] + singles[first + 1]) / 2
        np.testing.assert_allclose(together()["w1.grad"], expected, rtol=1e-5)


def test_seeds() -> None:
    first, same, other = (masks(seed=seed)()["w1.grad"] for seed in (0, 0, 1))
    assert first.tobytes() == same.tobytes() != other.tobytes()
    with pytest.raises(UsageError, match="seed: expected a whole number from 0 to 2147483647, got -1"):
        BuildGradient(seed=-1)


def test_no_dropout() -> None:
    found = masks(dropout=False)()
    assert (found["w1.grad"] != 0).all() and DRAWS not in trained(dropout=False).state()


def test_nothing_of_a_mask_is_kept() -> None:
    """Each dropout of the backward pass draws anew: it reads a gradient and the counter, nothing of the forward pass."""
    module = import_onnx(network(), dims={"batch": 4}, trainable=True)
    BuildGradient().apply(module)
    draws = [op for op in module.main.ops if op.name == "dropout"]
    assert [op.attrs["stream"] for op in draws] == [0, 1, 1, 0]
    assert {op.operands[1].name for op in draws} == {DRAWS}
    shapes = {v.type.shape for op in module.main.ops for v in op.results if v.type.dtype is DType.BOOL}
    assert (4, 8) not in shapes
    readers = {r.name for op in draws for r in module.main.ops if op.result in r.operands}
    assert readers <= {"matmul", "mul", "transpose"}


@pytest.mark.parametrize("mirror", ["cheap", "min-cut", "sublinear"])
def test_recomputed_dropout_draws_the_same(mirror: str) -> None:
    plain, again = trained(level=1), trained(level=1, mirror=mirror)
    assert [plain(X, LABELS) for _ in range(4)] == [again(X, LABELS) for _ in range(4)]
    assert plain.state()["w1"].tobytes() == again.state()["w1"].tobytes()


def test_dropout_set_by_hand_to_be_recomputed() -> None:
    results = []
    for count in (0, 2):
        module = import_onnx(network(), dims={"batch": 4}, trainable=True)
        for op in module.main.ops:
            if count and op.name in ("dropout", "tanh"):
                op.plan = replace(op.plan, mirror=count)
        BuildGradient(optimizer="none").apply(module)
        assert sum(bool(op.plan.recompute) and op.name == "dropout" for op in module.main.ops) == (2 if count else 0)
        results.append({name: array.tobytes() for name, array in evaluate(module, {"x": X, "labels": LABELS}).items()})
    assert results[0] == results[1]


@pytest.mark.parametrize("level", [0, 2])
def test_compiled_steps_are_those_of_the_evaluation(level: int) -> None:
    step = trained(level, optimizer="adam")
    module = import_onnx(network(), dims={"batch": 4}, trainable=True)
    BuildGradient(optimizer="adam").apply(module)
    state: dict[str, np.ndarray] = {}
    for _ in range(3):
        found = evaluate(module, {"x": X, "labels": LABELS, "learning_rate": np.float32(0.1), **state})
        assert step(X, LABELS) == pytest.approx(float(found.pop("loss")), rel=1e-5)
        state = found
    assert int(state[DRAWS]) == int(step.state()[DRAWS]) == 3


def test_gradients_under_fixed_masks_are_finite_differences() -> None:
    module = import_onnx(network(np.float64), dims={"batch": 4}, trainable=True)
    BuildGradient(optimizer="none", seed=9).apply(module)
    given = {"x": X.astype(np.float64), "labels": LABELS}
    found = evaluate(module, given)
    params = {p.name: p for p in module.main.params}
    for name in ("w1", "w2", "w3"):
        numbers = finite_differences(module, {**given, name: module.weights[name]}, params[name])
        np.testing.assert_allclose(found[f"{name}.grad"], numbers, rtol=0, atol=1e-6 * np.abs(numbers).max())


def test_a_restored_step_goes_on_with_the_same_losses(tmp_path: Path) -> None:
    step = trained(optimizer="sgd", seed=3)
    for _ in range(3):
        step(X, LABELS)
    step.save(tmp_path / "state.safetensors")
    after = [step(X, LABELS) for _ in range(3)]
    other = trained(optimizer="sgd")  # The seed is in the counter.
    other.restore(tmp_path / "state.safetensors")
    assert [other(X, LABELS) for _ in range(3)] == after
    assert len(set(after)) == 3


def test_export_keeps_dropout_as_it_was(tmp_path: Path) -> None:
    step = trained()
    step(X, LABELS)
    step.export_onnx(tmp_path / "trained.onnx")
    exported, given = onnx.load(tmp_path / "trained.onnx"), network()
    assert list(exported.graph.node) == list(given.graph.node)
    stored = {t.name: t for t in exported.graph.initializer}
    for tensor in given.graph.initializer:
        same = stored[tensor.name] == tensor
        assert same == (tensor.name in ("ratio", "training"))


@pytest.mark.parametrize("opset, ratio", [(7, 0.5), (10, 0.5), (12, 0.5), (13, 0.5), (22, 0.5), (7, 0.25), (13, 0.25)])
def test_ratios_of_all_opsets(opset: int, ratio: float) -> None:
    given = ["ratio"] if opset >= 12 and ratio != 0.5 else []
    attrs = {"ratio": ratio} if opset < 12 and ratio != 0.5 else {}
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Dropout", ["s", *given], ["y"], **attrs)]
    weights = {"w": np.ones(4, np.float32), **{name: np.array(ratio, np.float32) for name in given}}
    module = import_onnx(model_of(nodes, [4], [4], weights, opset), trainable=True)
    (op,) = (op for op in module.main.ops if op.name == "dropout")
    assert op.attrs["ratio"] == ratio
    assert list(module.weights) == ["w"]


@pytest.mark.parametrize("ratio, training", [(0.0, True), (0.4, True), (0.4, False)])
def test_training_mode_says_only_how_the_model_was_exported(ratio: float, training: bool) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Dropout", ["s", "ratio", "mode"], ["y"])]
    weights = {"w": np.ones(4, np.float32), "ratio": np.array(ratio, np.float32), "mode": np.array(training)}
    module = import_onnx(model_of(nodes, [4], [4], weights), trainable=True)
    assert ("dropout" in {op.name for op in module.main.ops}) == (ratio > 0)


def test_the_mask_output_is_the_mask() -> None:
    nodes = [
        helper.make_node("Add", ["x", "w"], ["s"]),
        helper.make_node("Dropout", ["s"], ["d", "mask"]),
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["d", "m"], ["y"]),
    ]
    module = import_onnx(model_of(nodes, [1, 50], [1, 50], {"w": np.ones(50, np.float32)}), trainable=True)
    (y,) = evaluate(module, {"x": np.zeros((1, 50), np.float32)}).values()
    assert set(y.reshape(-1).tolist()) == {0.0, 3.0}
    BuildGradient(loss="mse", optimizer="none").apply(module)
    zeros = np.zeros((1, 50), np.float32)
    losses = {
        float(evaluate(module, {"x": zeros, "labels": zeros, DRAWS: np.array(n)})["loss"]) * 50 / 9 for n in range(4)
    }
    assert len(losses) > 1 and all(loss == pytest.approx(round(loss)) for loss in losses)


def test_each_turn_of_a_loop_draws_its_own() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["on"]), helper.make_node("Dropout", ["v"], ["out"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [8]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("out", TensorProto.FLOAT, [8]),
        ],
    )
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Loop", ["count", "", "s"], ["y"], body=body)]
    weights = {"w": np.ones(8, np.float32), "count": np.array(3)}
    module = import_onnx(model_of(nodes, [8], [8], weights), trainable=True)
    assert [op.attrs["stream"] for op in module.main.ops if op.name == "dropout"] == [0, 1, 2]


def test_a_seed_that_the_function_takes_stays() -> None:
    module = import_onnx(network(), dims={"batch": 4}, trainable=True)
    given = Value("mine", TensorType(DType.I64, ()), role=Role.INPUT)
    module.main.params.append(given)
    first = next(op for op in module.main.ops if op.name == "dropout")
    first.operands = [first.operands[0], given]
    BuildGradient().apply(module)
    assert [op.operands[1].name for op in module.main.ops if op.name == "dropout"] == ["mine", DRAWS, DRAWS, "mine"]


@pytest.mark.parametrize("ratio", [1.0, -0.5])
def test_ratios_out_of_range(ratio: float) -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["y"], ratio=ratio)]
    with pytest.raises(UnsupportedError, match=r"node `y` \(Dropout\): expected a ratio from 0 to below 1, got"):
        import_onnx(model_of(nodes, [4], [4], {}, opset=10), trainable=True)


def test_dropout_binds_no_order() -> None:
    """Its numbers come from its operands, so that dropout waits for those alone."""
    module = import_onnx(two_masks(), dims={"batch": 1}, trainable=True)
    ops = ordered_ops(module.main.ops)
    problem = order_problem(module.main)
    makers = {value: index for index, op in enumerate(ops) for value in op.results}
    for op, after in zip(ops, problem.after):
        if op.name == "dropout":
            assert set(after) == {makers[v] for v in op.operands if v in makers}
