# SPDX-License-Identifier: Apache-2.0
"""Real exports with seeded weights, evaluated and compared with onnxruntime. benchmarks/verify_models.py runs all."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from memc.frontend.onnx import import_onnx
from memc.ir.core import Role
from memc.ir.evaluate import evaluate
from memc.ir.verify.structure import verify

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "benchmarks"))

import seeded_weights  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize(("name", "shape"), [("resnet18", (3, 64, 64)), ("lstm", (50, 1024))])
@pytest.mark.parametrize("batch", [1, 3])
def test_export(folder: Path, name: str, shape: tuple[int, ...], batch: int) -> None:
    path = seeded_weights.write_external(ROOT / "tests" / "data" / "models" / f"{name}.onnx", folder)
    if name == "resnet18":
        path = smaller(path, folder)
    start = time.process_time()
    module = import_onnx(path, dims={"batch": batch})
    assert time.process_time() - start < 2
    verify(module)
    assert [p.name for p in module.main.params_of(Role.INPUT)] == ["input"]
    x = np.random.default_rng(batch).normal(size=(batch, *shape)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"input": x})[0]
    got = evaluate(module, {"input": x})["logits"]
    assert got.shape == want.shape == (batch, 1000)
    assert np.linalg.norm(got - want) < 1e-4 * np.linalg.norm(want)


def smaller(path: Path, folder: Path) -> Path:
    """The model for images of 64 x 64: its convolutions take any size, and the test is faster."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = 64
    target = folder / f"small_{path.name}"
    target.write_bytes(model.SerializeToString())
    return target
