# SPDX-License-Identifier: Apache-2.0
"""Training from scratch on scikit-learn's digits, through the API and the command line, with and without recomputation."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import memc
from memc.cli import main
from memc.passes.training.mirror import POLICIES

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_digits.py"
RATES = {"adam": 2e-3, "adamw": 2e-3, "sgd": 0.03}


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    pytest.importorskip("sklearn")
    return runpy.run_path(str(EXAMPLE))


def accuracy_in_onnxruntime(path: Path, digits: Any) -> float:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"x": digits.test_images})
    return float((scores.argmax(1) == digits.test_labels).mean())


def assert_cheaper(report: dict[str, Any], full: dict[str, Any]) -> None:
    """Ops are recomputed, and the peak is at least a tenth lower for it."""
    assert report["peak_bytes"] <= 0.9 * full["peak_bytes"]
    found = report["recomputation"]
    assert found["ops"] > 0 and found["added_percent"] > 0
    assert found["peak_bytes_without"] == full["peak_bytes"]
    assert full["recomputation"] is None


def assert_trained_alike(example: dict[str, Any], steps: list[Any], kind: str, rate: float, folder: Path) -> None:
    """The same losses and in the end the same weights and moments, bit for bit, with which the model tells digits."""
    digits = example["load_digits"]()
    curves = [example["train"](step, digits, example["EPOCHS"][kind], rate) for step in steps]
    assert curves[0] == curves[1]
    assert curves[0][-1] < curves[0][0] / 5
    plain, budgeted = (step.state() for step in steps)
    assert plain.keys() == budgeted.keys()
    for name, content in plain.items():
        np.testing.assert_array_equal(budgeted[name], content)
    steps[1].export_onnx(folder / "trained.onnx")
    assert accuracy_in_onnxruntime(folder / "trained.onnx", digits) > 0.97


def test_a_perceptron_through_the_command_line(example: dict[str, Any], tmp_path: Path) -> None:
    onnx.save(example["build_model"]("mlp"), tmp_path / "digits.onnx")
    words = "--train --loss softmax-cross-entropy --optimizer sgd --optimizer-options momentum=0.9 -q".split()
    words += ["--dim", f"batch={example['BATCHES']['mlp']}"]
    reports: list[dict[str, Any]] = []
    steps = []
    for number in range(2):
        artifact, report = str(tmp_path / f"step{number}.memc"), tmp_path / f"report{number}.json"
        budget = ["--memory-budget", str(9 * reports[0]["peak_bytes"] // 10)] if reports else []
        assert (
            main(["compile", str(tmp_path / "digits.onnx"), *words, *budget, "-o", artifact, "--json", str(report)])
            == 0
        )
        reports.append(json.loads(report.read_text()))
        steps.append(memc.load(artifact))
    assert_cheaper(reports[1], reports[0])
    assert_trained_alike(example, steps, "mlp", RATES["sgd"], tmp_path)


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("cnn", "adam"),
        pytest.param("mlp", "adamw", marks=pytest.mark.slow),
        pytest.param("dropout", "adam", marks=pytest.mark.slow),
        pytest.param("cnn", "sgd", marks=pytest.mark.slow),
    ],
)
def test_a_memory_budget_through_the_api(example: dict[str, Any], kind: str, optimizer: str, tmp_path: Path) -> None:
    momentum = 0.9 if optimizer == "sgd" else 0.0
    how = memc.BuildGradient(loss="softmax-cross-entropy", optimizer=optimizer, momentum=momentum)
    compilations: list[memc.Compilation] = []
    for _ in range(2):
        budget = 9 * compilations[0].report.peak_bytes // 10 if compilations else None
        dims = {"batch": example["BATCHES"][kind]}
        compilations.append(memc.compile(example["build_model"](kind), dims=dims, train=how, memory_budget=budget))
    assert_cheaper(compilations[1].report.to_dict(), compilations[0].report.to_dict())
    assert_trained_alike(example, [found.load() for found in compilations], kind, RATES[optimizer], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_the_same_curve_with_and_without_mirrors(example: dict[str, Any], kind: str, tmp_path: Path) -> None:
    digits = example["load_digits"]()
    curves = []
    for mirror in POLICIES:
        how = memc.BuildGradient(optimizer="adam", mirror=mirror)
        dims = {"batch": example["BATCHES"][kind]}
        step = memc.compile(example["build_model"](kind), dims=dims, train=how, opt_level=1).load()
        curves.append(example["train"](step, digits, example["EPOCHS"][kind]))
    assert all(curve == curves[0] for curve in curves)
    step.export_onnx(tmp_path / "trained.onnx")
    reached = example["accuracy"](tmp_path / "trained.onnx", digits)
    assert reached > 0.97
    assert accuracy_in_onnxruntime(tmp_path / "trained.onnx", digits) == reached


def test_digits_are_split_without_overlap(example: dict[str, Any]) -> None:
    digits = example["load_digits"]()
    assert len(digits.images) + len(digits.test_images) == 1797
    assert sorted(np.unique(digits.test_labels)) == list(range(10))
