# SPDX-License-Identifier: Apache-2.0
"""Training steps end to end on the CPU, held against the optimizers' formulas in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.passes.training.build_gradient import BuildGradient
from memc.runtime.artifact import safetensors

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 2)).astype(np.float32)
B = RNG.normal(size=2).astype(np.float32)
X = RNG.normal(size=(4, 3)).astype(np.float32)
T = RNG.normal(size=(4, 2)).astype(np.float32)
RATE = 0.1


def linear() -> onnx.ModelProto:
    """y = x W + b."""
    nodes = [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(W, "W"), numpy_helper.from_array(B, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def compiled(level: int = 2, batch: int = 4, **options: Any) -> memc.Executable:
    train = BuildGradient(loss="mse", **options)
    step = memc.compile(linear(), dims={"batch": batch}, train=train, opt_level=level).load()
    step.learning_rate = RATE
    return step


def mse(w: np.ndarray, b: np.ndarray, x: np.ndarray = X, t: np.ndarray = T) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss and gradients in f64."""
    distance = x @ w + b - t
    g = 2 * distance / distance.size
    return float((distance**2).mean()), x.T @ g, g.sum(0)


class Reference:
    """An optimizer in f64, as PyTorch states it."""

    def __init__(self, kind: str, momentum=0.0, nesterov=False, weight_decay=0.0, clip_norm=None) -> None:
        self.kind, self.momentum, self.nesterov, self.decay, self.clip = (
            kind,
            momentum,
            nesterov,
            weight_decay,
            clip_norm,
        )
        self.weights = [W.astype(np.float64), B.astype(np.float64)]
        self.slots = [[np.zeros_like(w), np.zeros_like(w)] for w in self.weights]
        self.steps = 0

    def step(self) -> float:
        self.steps += 1
        loss, *gradients = mse(*self.weights)
        if self.clip is not None:
            norm = np.sqrt(sum((g**2).sum() for g in gradients))
            gradients = [g * min(1, self.clip / (norm + 1e-6)) for g in gradients]
        for w, g, slot in zip(self.weights, gradients, self.slots):
            if self.kind == "sgd":
                g = g + self.decay * w
                slot[0][:] = self.momentum * slot[0] + g
                w -= RATE * (g + self.momentum * slot[0] if self.nesterov else slot[0])
                continue
            if self.kind == "adam":
                g = g + self.decay * w
            else:
                w -= RATE * self.decay * w
            slot[0][:] = 0.9 * slot[0] + 0.1 * g
            slot[1][:] = 0.999 * slot[1] + 0.001 * g * g
            first, second = slot[0] / (1 - 0.9**self.steps), slot[1] / (1 - 0.999**self.steps)
            w -= RATE * first / (np.sqrt(second) + 1e-8)
        return loss


OPTIONS = [
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9},
    {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"optimizer": "adam", "weight_decay": 0.1},
    {"optimizer": "adamw", "weight_decay": 0.1},
    {"optimizer": "sgd", "clip_norm": 0.2},
]


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


def test_frozen_weights_stay() -> None:
    step = compiled(frozen=("W",))
    before, _ = step(X, T), step(X, T)
    assert set(step.states) == {"b"}
    assert step(X, T) < before


def test_state_saves_restores_and_exports(tmp_path: Path) -> None:
    step = compiled(optimizer="adam")
    for _ in range(3):
        step(X, T)
    step.save(tmp_path / "state.safetensors")
    after = [step(X, T), step(X, T)]
    other = compiled(optimizer="adam")
    other.restore(tmp_path / "state.safetensors")
    assert [other(X, T), other(X, T)] == after
    assert int(other.state()["step"]) == 5
    other.export_onnx(tmp_path / "trained.onnx")
    exported = onnx.load(tmp_path / "trained.onnx")
    onnx.checker.check_model(exported)
    stored = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
    assert stored["W"].tobytes() == other.state()["W"].tobytes()


@pytest.mark.parametrize(
    "rate", [float("nan"), float("inf"), -1, -1e-9, 1e39, 10**60, np.float32("nan"), np.float64(-2), np.array(-1, np.float32)]
)  # fmt: skip
def test_a_learning_rate_that_is_none(rate: Any, tmp_path: Path) -> None:
    step = compiled()
    before = {name: array.tobytes() for name, array in step.state().items()}
    said = "learning_rate: expected a (finite )?number( from 0 to 3.40282e[+]38)?, got "
    with pytest.raises(UsageError, match=said):
        step(X, T, learning_rate=rate)
    with pytest.raises(UsageError, match=said):
        step(X, T, rate)
    with pytest.raises(UsageError, match=said):
        step.run_numpy({"x": X, "labels": T, "learning_rate": rate})
    with pytest.raises(UsageError, match=said):
        step.placed_inputs({"x": X, "labels": T, "learning_rate": rate})
    if not isinstance(rate, np.ndarray):
        with pytest.raises(UsageError, match=said):
            step.learning_rate = rate
    assert step.learning_rate == RATE
    assert {name: array.tobytes() for name, array in step.state().items()} == before


@pytest.mark.parametrize("rate", ["0.1", None, True, [0.1], {}])
def test_a_learning_rate_of_another_type(rate: Any) -> None:
    step = compiled()
    with pytest.raises(UsageError, match="learning_rate: expected a number, got"):
        step.learning_rate = rate
    with pytest.raises(UsageError, match="learning_rate"):
        step(X, T, learning_rate=rate)
    with pytest.raises(UsageError, match="learning_rate"):
        step(X, T, learning_rate=np.array([0.1], np.float32))


def test_learning_rates_that_are_taken() -> None:
    expected = compiled()(X, T, learning_rate=0.0), None
    for rate in (0, np.float32(0), np.int64(0), np.array(0, np.float32), -0.0):
        step = compiled()
        before = step.state()["W"].tobytes()
        assert step(X, T, learning_rate=rate) == expected[0] and step.state()["W"].tobytes() == before
        step.learning_rate = rate if not isinstance(rate, np.ndarray) else 0
        assert step.learning_rate == 0 and step(X, T) == expected[0]


def states_of(step: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in step.state().items()}


OTHERS = {
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "sgd", "momentum": 0.9},
    "adam": {"optimizer": "adam"},
    "frozen": {"optimizer": "sgd", "frozen": ("b",)},
    "scaled": {"optimizer": "sgd", "loss_scale": "dynamic"},
}


@pytest.mark.parametrize("into", OTHERS)
@pytest.mark.parametrize("saved", OTHERS)
def test_states_of_another_optimizer(saved: str, into: str, tmp_path: Path) -> None:
    """All states or none: those of another training step are told by name, and nothing has changed then."""
    given, step, path = compiled(**OTHERS[saved]), compiled(**OTHERS[into]), tmp_path / "state"
    given(X, T)
    given.save(path)
    if saved == into:
        step.restore(path)
        assert states_of(step) == states_of(given)
        return
    before = states_of(step)
    for restore in (lambda: step.restore(path), lambda: step.load_state(given.state())):
        with pytest.raises((InvalidError, UsageError)) as caught:
            restore()
        message = str(caught.value)
        differ = set(given.states) ^ set(step.states)
        assert any(name in message for name in differ) and "\n" not in message
        assert states_of(step) == before
    step.restore(path, partial=True)
    both = set(given.states) & set(step.states)
    assert both and all(states_of(step)[name] == states_of(given)[name] for name in both)
    assert all(states_of(step)[name] == before[name] for name in set(step.states) - both)


def test_messages_of_states_name_both_sides(tmp_path: Path) -> None:
    given, step, path = compiled(optimizer="adam"), compiled(momentum=0.9), tmp_path / "state"
    given.save(path)
    with pytest.raises(InvalidError) as caught:
        step.restore(path)
    assert str(caught.value) == (
        f"{path}: expected the state W.momentum, but it is not there (nor 1 others); got the state W.exp_avg (and 4 others), "
        "which this step does not have; the step has W, W.momentum, b, b.momentum; there are W, W.exp_avg, W.exp_avg_sq, b, "
        "b.exp_avg, b.exp_avg_sq and 1 more; partial=True leaves states of one side alone aside"
    )
    with pytest.raises(UsageError, match="state: expected the state b.momentum, but it is not there; the step has"):
        step.load_state({name: array for name, array in step.state().items() if name != "b.momentum"})
    before = step.state()["b"].tobytes()
    step.load_state({"W": W}, partial=True)
    assert step.state()["W"].tobytes() == W.tobytes() and step.state()["b"].tobytes() == before
    with pytest.raises(UsageError, match="no state is called W.momentun; expected one of .*; did you mean W.momentum?"):
        step.load_state({"W.momentun": W}, partial=True)
    for content, says in (
        ({"W": [[1.0], [1.0, 2.0]]}, "state W"),
        ({"W": "W"}, "state W"),
        ({"W": W.astype(np.float64)}, "got float64"),
        ({"W": None}, "state W"),
    ):
        with pytest.raises(UsageError, match=says):
            step.load_state(content, partial=True)
    for call in (step.save, step.restore, step.export_onnx):
        with pytest.raises(UsageError, match="expected the path of a file, got 3"):
            call(3)


def test_state_that_does_not_fit() -> None:
    step = compiled()
    with pytest.raises(UsageError, match="no state is called nonsense; expected one of W, b"):
        step.load_state({"nonsense": W})
    with pytest.raises(UsageError, match=r"state W: f32\[3,2\]: got float32\[2\]"):
        step.load_state({"W": B})


def test_a_file_that_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(InvalidError, match="cannot be read as saved state"):
        compiled().restore(tmp_path / "x")


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
        ({"optimizer": "adam", "momentum": 0.9}, "adam: has no option momentum; it takes weight-decay, beta1, beta2"),
        ({"beta1": 0.5}, "sgd: has no option beta1; it takes momentum, nesterov, weight-decay"),
        ({"optimizer": "none", "momentum": 0.9}, "none: has no option momentum; it takes no options"),
    ],
)
def test_options_of_optimizers(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BuildGradient(**options)  # type: ignore[arg-type]


def test_the_learning_rate_of_one_step_may_be_a_number() -> None:
    step, given = compiled(), compiled()
    given.learning_rate = 0.0
    assert [step(X, T), step(X, T)] == [given(X, T, learning_rate=RATE), given(X, T, learning_rate=np.float32(RATE))]
    assert [step(X, T), step(X, T)] == [given(X, T, RATE), given(X, T, np.float32(RATE))]
    with pytest.raises(UsageError, match="got 4 inputs, expected 3"):
        given(X, T, RATE, RATE)
    with pytest.raises(UsageError, match="state: expected a dict of arrays by name, got list"):
        given.load_state([W])  # type: ignore[arg-type]


def test_state_of_another_model(tmp_path: Path) -> None:
    step, path = compiled(), tmp_path / "state.safetensors"
    with pytest.raises(UsageError, match="cannot read the state: No such file"):
        step.restore(path)
    step.save(path)
    with pytest.raises(InvalidError, match=r"expected the state W.momentum, but it is not there \(nor 1 others\)"):
        compiled(momentum=0.9).restore(path)
    turned = [("W", "f32", (2, 3), W.nbytes, lambda: W), ("b", "f32", (2,), B.nbytes, lambda: B)]
    safetensors.write(path, turned)
    with pytest.raises(InvalidError, match=r"expected W: f32\[3,2\], got f32\[2,3\] of 24 bytes"):
        step.restore(path)


def test_saved_state_that_was_damaged_is_refused(tmp_path: Path) -> None:
    step, path = compiled(), tmp_path / "state.safetensors"
    step.save(path)
    whole = path.read_bytes()
    for position in (len(whole) - 1, whole.index(b'"b"') + 1):
        data = bytearray(whole)
        data[position] ^= 1
        path.write_bytes(data)
        with pytest.raises(InvalidError, match="expected the checksum"):
            step.restore(path)


def test_saved_state_survives_when_its_successor_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, path = compiled(), tmp_path / "state.safetensors"
    step.save(path)
    (tmp_path / "latest").symlink_to(path)
    before = path.read_bytes()

    def fail(array: np.ndarray) -> np.ndarray:
        raise OSError(28, "No space left on device")

    step(X, T)
    with monkeypatch.context() as patched:
        patched.setattr(safetensors.np, "ascontiguousarray", fail)
        with pytest.raises(UsageError, match="No space left"):
            step.save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 2
    step.save(tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink() and path.read_bytes() != before


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
