# SPDX-License-Identifier: Apache-2.0
"""Training from scratch on scikit-learn's digits, through the API and the command line."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import memc
from memc.cli import main
from memc.passes.mirror import POLICIES

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_digits.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    pytest.importorskip("sklearn")
    return runpy.run_path(str(EXAMPLE))


def accuracy_in_onnxruntime(path: Path, digits: Any) -> float:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"x": digits.test_images})
    return float((scores.argmax(1) == digits.test_labels).mean())


def test_a_perceptron_through_the_command_line(example: dict[str, Any], tmp_path: Path) -> None:
    digits = example["load_digits"]()
    onnx.save(example["build_model"]("mlp"), tmp_path / "digits.onnx")
    words = "--train --loss softmax-cross-entropy --optimizer adam --dim batch=32 --mirror cheap -q -o"
    assert main(["compile", str(tmp_path / "digits.onnx"), *words.split(), str(tmp_path / "step.memc")]) == 0
    step = memc.load(tmp_path / "step.memc")
    example["train"](step, digits, epochs=12)
    step.export_onnx(tmp_path / "trained.onnx")
    assert accuracy_in_onnxruntime(tmp_path / "trained.onnx", digits) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "epochs"), [("mlp", 12), ("cnn", 8)])
def test_the_same_curve_with_and_without_recomputation(
    example: dict[str, Any], kind: str, epochs: int, tmp_path: Path
) -> None:
    digits = example["load_digits"]()
    curves = []
    for mirror in POLICIES:
        how = memc.BuildGradient(optimizer="adam", mirror=mirror)
        step = memc.compile(example["build_model"](kind), dims={"batch": 32}, train=how, opt_level=1).load()
        curves.append(example["train"](step, digits, epochs=epochs))
    assert curves[0] == curves[1] == curves[2]
    step.export_onnx(tmp_path / "trained.onnx")
    reached = example["accuracy"](tmp_path / "trained.onnx", digits)
    assert reached > 0.97
    assert accuracy_in_onnxruntime(tmp_path / "trained.onnx", digits) == reached


def test_digits_are_split_without_overlap(example: dict[str, Any]) -> None:
    digits = example["load_digits"]()
    assert len(digits.images) + len(digits.test_images) == 1797
    assert sorted(np.unique(digits.test_labels)) == list(range(10))
