# SPDX-License-Identifier: Apache-2.0
"""States of training steps: saved, restored, exported, and refused where they are those of another step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from memc.ir.errors import InvalidError, UsageError
from memc.runtime.artifact import safetensors

from .linear_step import B, T, W, X, compiled


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
