# SPDX-License-Identifier: Apache-2.0
"""memc verify: it passes where results agree, and fails where they do not."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from memc.measure import verification


def test_passes(memc, model: str) -> None:
    result = memc("verify", model, "--dim", "batch=2")
    lines = result.out.splitlines()
    assert result.code == 0 and result.err == "" and len(lines) == 2
    assert re.match(r"ok     y: relative error \S+; 0 of 6 elements differ; worst at \[", lines[0])
    assert lines[1] == f"PASSED | {model} against onnxruntime: 1 tensor match"


def test_all_tensors(memc, model: str) -> None:
    result = memc("verify", model, "--dim", "batch=2", "--all-tensors", "--json", "-")
    assert result.code == 0
    found = json.loads(result.out)
    assert sorted(found) == ["m", "r", "y"] and all(item["matches"] for item in found.values())


def test_against_numpy(memc, model: str, text: str) -> None:
    result = memc("verify", model, "--dim", "batch=3", "--against", "numpy")
    assert result.code == 0 and result.out.endswith("against numpy: 1 tensor match\n")
    assert memc("verify", text, "--against", "numpy", "-q").code == 0
    with open("unnamed.memir", "w") as file:
        file.write("func @main(%x: f32[2] {role = input}) -> f32[2] {\n  %0 = exp(%x) : f32[2]\n  return %0\n}\n")
    result = memc("verify", "unnamed.memir", "--against", "numpy")
    assert result.code == 0 and result.out.startswith("ok     output.0: ")


@pytest.mark.parametrize("against", verification.REFERENCES)
def test_fails(memc, model: str, monkeypatch: pytest.MonkeyPatch, against: str) -> None:
    compare = verification.compare
    monkeypatch.setattr(verification, "compare", lambda a, b, **limits: compare(a + np.float32(0.5), b, **limits))
    result = memc("verify", model, "--dim", "batch=2", "--against", against, "-q", "--input", "x=0")
    assert result.code == 1
    # relu(0) + 1 is 1 everywhere.
    assert result.out == "FAILED y: relative error 0.5; 6 of 6 elements differ; worst at [0, 0]: expected 1, got 1.5\n"
    assert result.err == f"memc: error: FAILED | {model} against {against}: 1 of 1 tensors differ\n"
    assert (
        memc("verify", model, "--dim", "batch=2", "--against", against, "-q", "--input", "x=0", "--atol", "1").code == 0
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--against", "torch"], 2, "--against torch: expected one of onnxruntime, numpy, got 'torch'"),
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
