# SPDX-License-Identifier: Apache-2.0
"""memc verify: it passes where results agree, and fails where they do not."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import onnx.parser
import pytest

from memc.ir.errors import UnsupportedError
from memc.measure import tolerances, verification


def test_passes(memc, model: str) -> None:
    result = memc("verify", model, "--dim", "batch=2")
    lines = result.out.splitlines()
    assert result.code == 0 and result.err == "" and len(lines) == 2
    assert re.match(r"ok     y: relative error \S+; 0 of 6 elements differ; worst at \[", lines[0])
    assert lines[1] == f"PASSED | {model} against onnxruntime (f32: rtol 0.001, atol 1e-05): 1 tensor match"


def test_all_tensors(memc, model: str) -> None:
    result = memc("verify", model, "--dim", "batch=2", "--all-tensors", "--json", "-")
    assert result.code == 0
    found = json.loads(result.out)
    assert sorted(found) == ["m", "r", "y"] and all(item["matches"] for item in found.values())


def test_against_numpy(memc, model: str, text: str) -> None:
    result = memc("verify", model, "--dim", "batch=3", "--against", "numpy")
    assert result.code == 0 and result.out.endswith("against numpy (f32: rtol 0.001, atol 1e-05): 1 tensor match\n")
    assert memc("verify", text, "--against", "numpy", "-q").code == 0
    with open("unnamed.memir", "w") as file:
        file.write("func @main(%x: f32[2] {role = input}) -> f32[2] {\n  %0 = exp(%x) : f32[2]\n  return %0\n}\n")
    result = memc("verify", "unnamed.memir", "--against", "numpy")
    assert result.code == 0 and result.out.startswith("ok     output.0: ")


@pytest.mark.parametrize("against", verification.REFERENCES)
def test_fails(memc, model: str, monkeypatch: pytest.MonkeyPatch, against: str) -> None:
    compare = tolerances.compare
    monkeypatch.setattr(tolerances, "compare", lambda a, b, **limits: compare(a + np.float32(0.5), b, **limits))
    result = memc("verify", model, "--dim", "batch=2", "--against", against, "-q", "--input", "x=0")
    assert result.code == 1
    # relu(0) + 1 is 1 everywhere.
    found = "relative error 0.5; 6 of 6 elements differ; worst at [0, 0]: expected 1, got 1.5"
    second = f" | onnx: {found}" if against == "onnxruntime" else ""
    assert result.out == f"FAILED y: {found}{second}\n"
    limits = "f32: rtol 0.001, atol 1e-05"
    assert result.err == f"memc: error: FAILED | {model} against {against} ({limits}): 1 of 1 tensors differ\n"
    assert (
        memc("verify", model, "--dim", "batch=2", "--against", against, "-q", "--input", "x=0", "--atol", "1").code == 0
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--against", "torch"], 2, "--against torch: expected one of onnxruntime, onnx, numpy, got 'torch'"),
        (["--input", "z=1"], 2, "--input z: no such input; expected x"),
        (["--input", "x=[1]"], 2, "input `x`: expected shape [2, 4], got [1]"),
        (["-O9"], 2, "optimization level: expected 0 to 3, got 9"),
    ],
)
def test_errors(memc, model: str, arguments: list[str], code: int, message: str) -> None:
    result = memc("verify", model, "--dim", "batch=2", *arguments)
    assert (result.code, result.out, result.err) == (code, "", f"memc: error: {message}\n")


def test_text_needs_numpy(memc, text: str) -> None:
    for arguments in ([], ["--against", "numpy", "--all-tensors"]):
        result = memc("verify", text, *arguments)
        assert result.code == 2 and "need an .onnx model; use --against numpy alone" in result.err


def test_options_of_compile_are_read_as_there(memc, model: str) -> None:
    result = memc("verify", model, "--dim", "batch=2", "--workspace", "4KiB")
    assert result.code == 0 and "PASSED" in result.out
    result = memc("verify", model, "--dim", "batch=2", "--workspace", "much")
    assert result.code == 2 and "size `much`: expected a number of bytes" in result.err


def off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has onnxruntime find something else than the model says."""
    run = verification.run_onnxruntime
    monkeypatch.setattr(
        verification, "run_onnxruntime", lambda *given: {name: array + 1 for name, array in run(*given).items()}
    )


def test_the_reference_decides_where_onnxruntime_is_off(memc, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch)
    result = memc("verify", model, "--dim", "batch=2", "--input", "x=0", "--json", "found.json")
    first, last = result.out.splitlines()
    assert result.code == 0
    assert first.startswith("ok     y: relative error 0; 0 of 6 elements differ; ")
    assert first.endswith(
        " | against onnx | onnxruntime: relative error 0.5; 6 of 6 elements differ; worst at [0, 0]: expected 2, got 1"
    )
    assert last.endswith(": 1 tensor match, 1 of them against onnx")
    with open("found.json") as file:
        found = json.load(file)["y"]
    assert (
        found["matches"] and found["against"] == "onnx" and found["note"].startswith("onnxruntime: relative error 0.5")
    )


def test_what_differs_from_both_fails(memc, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "run_reference", lambda *given: {"y": np.full((2, 3), 4, np.float32)})
    assert memc("verify", model, "--dim", "batch=2", "--input", "x=0").code == 0
    off(monkeypatch)
    result = memc("verify", model, "--dim", "batch=2", "--input", "x=0")
    assert result.code == 1 and " expected 2, got 1 | onnx: relative error 0.75; " in result.out


@pytest.fixture
def bfloat(tmp_path) -> str:
    """What onnxruntime has no kernel for."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
        g (bfloat16[4] x) => (bfloat16[4] y) { y = Selu(x) }""")
    onnx.save(model, tmp_path / "bfloat.onnx")
    return str(tmp_path / "bfloat.onnx")


def test_what_onnxruntime_cannot_run_is_compared_with_the_reference(
    memc, bfloat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = memc("verify", bfloat)
    note, first, last = result.out.splitlines()
    assert result.code == 0 and note.startswith("note   onnxruntime cannot run the model: ")
    assert first.startswith("ok     y: ") and first.endswith(" | against onnx")
    assert last.endswith("against onnxruntime (bf16: relative error 0.05): 1 tensor match, 1 of them against onnx")

    def fails(*given):
        raise UnsupportedError("onnx's reference cannot run the model: why")

    monkeypatch.setattr(verification, "run_reference", fails)
    result = memc("verify", bfloat)
    assert result.code == 3 and result.out == ""
    assert result.err.startswith("memc: error: onnxruntime cannot") and result.err.endswith(
        "cannot run the model: why\n"
    )


@pytest.mark.parametrize("shape", ["n", "2", "2,n"])
def test_a_number_is_bound_to_a_whole_input(memc, shape: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17]> g (float[{shape}] x, float[3,2,2] z) => (float[?,?,?] y)
        {{ y = Mul(x, z) }}"""
    )
    onnx.save(model, "bound.onnx")
    for against in verification.REFERENCES:
        dims = ["--dim", "n=2"] if "n" in shape else []
        result = memc("verify", "bound.onnx", *dims, "--bind", "x=20", "--input", "z=3", "--against", against)
        assert (result.code, result.err) == (0, "") and "expected 60, got 60" in result.out


def test_passes_can_be_left_out(memc, model: str) -> None:
    result = memc("verify", model, "--dim", "batch=2", "--disabled-pass", "fuse,reorder")
    assert result.code == 0 and "PASSED" in result.out
    assert (
        "disabled pass `fsue`: expected one of"
        in memc("verify", model, "--dim", "batch=2", "--disabled-pass", "fsue").err
    )


QUANTIZED = """<ir_version: 9, opset_import: ["": 17]> g (float[64] x) => (float[64] y) {
    s = Constant<value = float {0.01}>() z = Constant<value = uint8 {128}>()
    q = QuantizeLinear(x, s, z)
    y = DequantizeLinear(q, s, z)
}"""


def test_an_earlier_operator_set_has_a_reference_too(memc) -> None:
    onnx.save(onnx.parser.parse_model(QUANTIZED), "quantized.onnx")
    result = memc("verify", "quantized.onnx", "--against", "onnx")
    assert result.code == 0 and "relative error 0; " in result.out and "(8-bit: relative error 0.02)" in result.out


@pytest.mark.parametrize(("factor", "code"), [(0.95, 0), (1 / 1.025, 1)])
def test_references_that_are_apart_allow_more(memc, monkeypatch: pytest.MonkeyPatch, factor: float, code: int) -> None:
    onnx.save(onnx.parser.parse_model(QUANTIZED), "quantized.onnx")
    run = verification.run_onnxruntime

    def times(factor: float):
        return lambda *given: {name: array * np.float32(factor) for name, array in run(*given).items()}

    monkeypatch.setattr(verification, "run_onnxruntime", times(1 / 1.025))
    monkeypatch.setattr(verification, "run_reference", times(factor))
    monkeypatch.setattr(verification, "moved_results", lambda *_: [])
    result = memc("verify", "quantized.onnx")
    assert result.code == code
    assert (" | onnx and it differ, too: 0.02" in result.out) == (code == 0)
