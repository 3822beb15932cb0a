# SPDX-License-Identifier: Apache-2.0
"""A user's broken file gives one line and exit code 2 or 3: no traceback, no hang, no flood of memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from memc.cli import main

from .mutations import mutated_memir, mutated_onnx, seed_model

ACCEPTED = {0, 2, 3}


def run_main(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr of a command, in at most 10 s and without growing by 4 GiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    code = main(arguments)
    captured = capsys.readouterr()
    assert time.monotonic() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * 2**20
    assert "Traceback" not in captured.err
    return code, captured.err


def assert_one_line(code: int, error: str, name: str) -> None:
    assert code in ACCEPTED, f"{name}: exit {code}: {error}"
    if code:
        assert error.startswith("memc: error: ") and len(error.splitlines()[0]) > 20, f"{name}: {error!r}"


@pytest.mark.parametrize(("name", "blob"), [pytest.param(n, b, id=n) for n, b in mutated_onnx(140)])
def test_mutated_onnx(name: str, blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(blob)
    code, error = run_main(["compile", str(path), "--plan-only", "-q"], capsys)
    assert_one_line(code, error, name)
    assert len(error.splitlines()) <= 1


@pytest.mark.parametrize(("name", "text"), [pytest.param(n, t, id=n) for n, t in mutated_memir(84)])
def test_mutated_memir(name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.memir"
    path.write_text(text, encoding="utf-8")
    code, error = run_main(["opt", str(path), "-p", "canonicalize"], capsys)
    assert_one_line(code, error, name)


def test_the_mutations_do_break_things(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = []
    for _, blob in mutated_onnx(40, seed=1):
        path = tmp_path / "model.onnx"
        path.write_bytes(blob)
        codes.append(run_main(["compile", str(path), "--plan-only", "-q"], capsys)[0])
    assert codes.count(3) >= 20
    path.write_bytes(seed_model(0).SerializeToString())
    assert run_main(["compile", str(path), "--plan-only", "-q"], capsys)[0] == 0


@pytest.mark.parametrize("kind", ["text", "empty", "missing", "folder", "domain", "external", "cycle"])
def test_the_usual_mistakes(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    model = seed_model(0)
    expected, words = 3, [str(path)]
    if kind == "text":
        path.write_text("this is not a model\n")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "missing":
        expected = 3
    elif kind == "folder":
        path.mkdir()
    elif kind == "domain":
        model.graph.node[1].domain = "com.example"
        model.opset_import.append(helper.make_opsetid("com.example", 1))
        words = ["relu", "com.example"]
    elif kind == "external":
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        (tmp_path / "w.bin").unlink()
        words = ["w.bin"]
    elif kind == "cycle":
        model.graph.node[1].input[0] = "y"
        words = ["cycl"]
    if kind in ("domain", "cycle"):
        path.write_bytes(model.SerializeToString())
    code, error = run_main(["compile", str(path), "--plan-only", "-q"], capsys)
    assert code in (2, expected) and len(error.splitlines()) == 1
    for word in words:
        assert word in error


def test_bad_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    model = seed_model(0)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    path.write_bytes(model.SerializeToString())
    for arguments, word in [
        (["--dim", "batch"], "NAME=VALUE"),
        (["--dim", "batch=x"], "batch=x"),
        (["--input-shapes", "x"], "--input-shapes"),
        (["--bind", "x=hello"], "hello"),
        (["--bind", "nosuch=1", "--dim", "height=6"], "nosuch"),
        (["--target", "abacus", "--dim", "height=6"], "abacus"),
        (["-O7"], "7"),
        (["--memory-budget", "much"], "much"),
        (["--nonsense"], "nonsense"),
        (["-p", "nonsense", "--dim", "height=6"], "nonsense"),
        (["--disabled-pass", "nonsense", "--dim", "height=6"], "nonsense"),
    ]:
        code, error = run_main(["compile", str(path), "--plan-only", *arguments], capsys)
        assert (code, word in error) == (2, True), f"{arguments}: exit {code}: {error}"
    code, error = run_main(["compile", str(path), "--plan-only"], capsys)
    assert code == 3 and "height" in error and "--dim" in error


def test_huge_tensors_are_planned_without_being_allocated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2**20, 2**14])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    path = tmp_path / "huge.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    code, error = run_main(["compile", str(path), "--plan-only", "-O0", "-q"], capsys)
    assert code == 0, error
