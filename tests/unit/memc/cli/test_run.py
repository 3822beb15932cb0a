# SPDX-License-Identifier: Apache-2.0
"""memc run: inputs from text and files, outputs, comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from memc.cli.values import parse_tensor
from memc.ir.errors import DeviceMemoryError, UsageError
from memc.ir.types import DType, TensorType


def expected(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.maximum(x @ weight, 0) + 1


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("2", np.full((2, 4), 2)),
        ("-0.5", np.full((2, 4), -0.5)),
        ("2x4xf32=3", np.full((2, 4), 3)),
        ("[[1, 2, 3, 4], [-1, 0, 0.5, 1]]", np.array([[1, 2, 3, 4], [-1, 0, 0.5, 1]])),
    ],
)
def test_values(memc, artifact: str, weight: np.ndarray, value: str, data: np.ndarray) -> None:
    result = memc("run", artifact, "--input", f"x={value}", "--json", "-")
    assert result.code == 0 and result.err == ""
    np.testing.assert_allclose(json.loads(result.out)["y"], expected(data, weight), rtol=1e-5)


def test_files(memc, artifact: str, weight: np.ndarray) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
    np.save("x.npy", x)
    np.save("y.npy", expected(x, weight))
    result = memc("run", artifact, "-i", "x=@x.npy", "--output", "out.npy", "--expected", "y=@y.npy")
    assert result.code == 0
    assert result.out.startswith("y: f32[2,3] [[")
    assert "[SUCCESS] result y: relative error " in result.out and "; 0 of 6 elements differ" in result.out
    np.testing.assert_allclose(np.load("out.npy"), expected(x, weight), rtol=1e-5)
    assert memc("run", artifact, "-i", "x=@x.npy", "--output", "y=named.npy", "-q").out == ""
    assert np.array_equal(np.load("named.npy"), np.load("out.npy"))


def test_expected_that_differs(memc, artifact: str) -> None:
    np.save("y.npy", np.ones((2, 3), np.float32) * 5)
    result = memc("run", artifact, "-i", "x=0", "--expected", "y=@y.npy")
    assert result.code == 1
    assert (
        "[FAILED] result y: relative error 0.8; 6 of 6 elements differ; worst at [0, 0]: expected 5, got 1"
        in result.out
    )
    assert result.err == "memc: error: 1 of 1 outputs do not match\n"
    assert memc("run", artifact, "-i", "x=0", "--expected", "y=@y.npy", "--atol", "4.5").code == 0
    assert memc("run", artifact, "-i", "x=0", "--expected", "y=@y.npy", "--rtol", "0.9").code == 0


def test_random_is_seeded(memc, artifact: str, weight: np.ndarray) -> None:
    outputs = [memc("run", artifact, "-i", "x=random", "--json", "-", "--seed", seed).out for seed in ("1", "1", "2")]
    assert outputs[0] == outputs[1] != outputs[2]
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(json.loads(outputs[0])["y"], expected(x, weight), rtol=1e-4)


def test_statistics(memc, artifact: str) -> None:
    result = memc("run", artifact, "-i", "x=0", "--print-statistics")
    assert result.out.splitlines()[1:] == ["arena: 0 B", "weights: 128 B", "inputs: 32 B", "outputs: 24 B"]
    result = memc("run", artifact, "-i", "x=0", "--print-statistics", "--json", "-")
    assert json.loads(result.out) == {"y": [[1, 1, 1], [1, 1, 1]]} and "weights: 128 B" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing inputs: x: f32[2,4] (give --input NAME=@file.npy or NAME=random)"),
        (["-i", "x"], "--input x: expected NAME=VALUE"),
        (["-i", "z=1"], "--input z: no such input; expected x"),
        (["-i", "x=@none.npy"], "none.npy: cannot read as .npy: "),
        (["-i", "x=@double.npy"], "input `x`: expected f32, got float64 in double.npy"),
        (["-i", "x=@short.npy"], "input `x`: expected shape [2, 4], got [2]"),
        (["-i", "x=[[1, 2]]"], "input `x`: expected shape [2, 4], got [1, 2]"),
        (["-i", "x=4x2xf32=1"], "input `x`: expected f32[2,4], got 4x2xf32=1"),
        (["-i", "x=2x4xf16=1"], "input `x`: expected f32[2,4], got 2x4xf16=1"),
        (["-i", "x=one"], "value `one`: expected @file.npy, a number, true, false or a JSON list"),
        (["-i", "x=1", "--output", "z=a.npy"], "--output z=a.npy: no output `z`; expected one of y"),
        (["-i", "x=1", "--output", "nowhere/a.npy"], "nowhere/a.npy: cannot write: No such file or directory"),
        (["-i", "x=1", "--expected", "z=@y.npy"], "--expected z: no such output; expected one of y"),
        (["-i", "x=1", "--expected", "y=1"], "--expected y=1: expected @file.npy"),
    ],
)
def test_errors(memc, artifact: str, arguments: list[str], message: str) -> None:
    np.save("double.npy", np.zeros((2, 4)))
    np.save("short.npy", np.zeros(2, np.float32))
    result = memc("run", artifact, *arguments)
    assert result.code == 2 and result.err.startswith(f"memc: error: {message}") and result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("dtype", "text", "found"),
    [
        (DType.I64, "2.0", 2),
        (DType.I64, "9223372036854775807", 2**63 - 1),
        (DType.U64, "18446744073709551615", 2**64 - 1),
        (DType.BOOL, "1", True),
        (DType.F16, "0.1", np.float16(0.1)),
        (DType.F32, "Infinity", np.float32("inf")),
        (DType.BF16, "1e9", ml_dtypes.bfloat16(1e9)),
        (DType.I64, "2.7", None),
        (DType.I64, "1e30", None),
        (DType.I64, "NaN", None),
        (DType.I32, "3000000000", None),
        (DType.U8, "-1", None),
        (DType.U8, "[1, 300]", None),
        (DType.BOOL, "0.5", None),
        (DType.F16, "1e9", None),
    ],
)
def test_numbers_that_the_type_does_not_hold_are_refused(dtype: DType, text: str, found: object) -> None:
    if found is not None:
        array = parse_tensor(text, TensorType(dtype, (2,)), "x")
        assert array.dtype == dtype.numpy and array.tolist() == [found, found]
        return
    with pytest.raises(UsageError, match=f"input `x`: expected {dtype.value}, got .* in `"):
        parse_tensor(text, TensorType(dtype, (2,)), "x")


@pytest.mark.parametrize("text", ["1", "random", "1099511627776xf32=0.5"])
def test_a_tensor_beyond_memory_is_refused_before_it_is_made(text: str) -> None:
    with pytest.raises(
        DeviceMemoryError, match="^input `x`: expected at most the .* of this machine's memory, got 4.00 TiB$"
    ):
        parse_tensor(text, TensorType(DType.F32, (2**40,)), "x")


def test_no_artifact(memc, model: str) -> None:
    result = memc("run", "none.memc")
    assert (
        result.code == 3
        and "none.memc: expected an artifact folder that `memc compile` wrote, found nothing" in result.err
    )
    assert memc("run", model).err.endswith("found a file\n")
    Path("empty.memc").mkdir()
    result = memc("run", "empty.memc")
    assert (result.code, result.err) == (
        3,
        "memc: error: empty.memc: artifact has no plan.json; compile the model again\n",
    )
