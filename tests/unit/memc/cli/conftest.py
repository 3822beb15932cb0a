# SPDX-License-Identifier: Apache-2.0
"""A tiny model, its artifact, and a way to run commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memc.cli import main

WEIGHT = (np.arange(12, dtype=np.float32).reshape(4, 3) * 7 % 12 - 5) / 10

TEXT = """\
func @main(%x: f32[16] {role = input}) -> (f32[1] {name = "y"}) {
  %a = exp(%x) : f32[16]
  %b = neg(%a) : f32[16]
  %c = reduce_sum(%b) {axes = [0], keepdims = true} : f32[1]
  return %c
}
"""


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str


Memc = Callable[..., Result]


def build() -> onnx.ModelProto:
    """y = relu(x w) + 1, x f32[batch,4]."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
            helper.make_node("Relu", ["m"], ["r"], name="relu"),
            helper.make_node("Add", ["r", "one"], ["y"], name="add"),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array([1], np.float32), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def memc(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memc:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(build(), path)
    return str(path)


@pytest.fixture(scope="session")
def artifact(model: str) -> str:
    """The model compiled for batch 2."""
    path = str(Path(model).with_name("tiny.memc"))
    assert main(["compile", model, "--dim", "batch=2", "-o", path, "-q"]) == 0
    return path


@pytest.fixture
def text(memc: Memc) -> str:
    """A file of IR text in the current folder."""
    Path("small.memir").write_text(TEXT)
    return "small.memir"


@pytest.fixture
def weight() -> np.ndarray:
    return WEIGHT
