# SPDX-License-Identifier: Apache-2.0
"""Arguments of the public functions that are of another type, no choice or out of range: one line that names the argument,
before anything is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import memc
from memc.ir.target import Target
from memc.measure.compare import compare
from memc.runtime.code_target import CodeTarget

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { y = Exp(x) }'
)

TENSORS = [memc.Tensor("a", 0, 2, 10), memc.Tensor("b", 1, 3, 10)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(MODEL, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


CALLS: dict[str, Callable[..., Any]] = {
    "import_onnx": lambda file, **o: memc.import_onnx(MODEL, **{"dims": {"n": 1}, **o}),
    "plan": lambda file, **o: memc.plan(TENSORS, **o),
    "bench": lambda file, **o: memc.bench(MODEL, **{"dims": {"n": 1}, "runs": 1, "warmup": 0, **o}),
    "verify": lambda file, **o: memc.verify(file, **{"dims": {"n": 1}, **o}),
    "compare": lambda file, **o: compare(np.ones(2), np.ones(2), **{"rtol": 0.1, "atol": 0.1, **o}),
    "Target": lambda file, **o: Target(**{"kind": "cuda", **o}),
    "Target.of": lambda file, **o: Target.of(**{"kind": "cuda", **o}),
    "CodeTarget.create": lambda file, **o: CodeTarget.create(**{"kind": "cuda", **o}),
    "load": lambda file, **o: memc.load(file, **o),
}

NO_NUMBER = ("1", None, True, [1], math.nan)
NO_WHOLE = (*NO_NUMBER, 1.5, -1, 2**70)

WRONG: dict[tuple[str, str], tuple[Any, ...]] = {
    ("import_onnx", "dims"): (3, "n=2", {"n": "2"}, {"n": 2.5}, {3: 2}, {"n": True}, {"m": 1}, {"n": 2**70}, {"n": -1}),
    ("import_onnx", "input_shapes"): (3, {"x": 3}, {"x": "ab"}, {"x": (2.5, 4)}, [("x", (1, 4))], {"q": (1,)}),
    ("import_onnx", "bind"): (3, {"x": "1"}, {"x": None}, {"x": object()}, {"x": [[1], [1, 2]]}, {"q": 1}),
    ("import_onnx", "trainable"): (1, "yes", None),
    ("plan", "capacity"): ("one", 1.5, True, -1, {"arena": "one"}, {"x": 1}, 2**70, math.nan),
    ("plan", "alignment"): (0, "many", *(wrong for wrong in NO_WHOLE if wrong not in (None, "1")), 2**41),
    ("plan", "solver"): ("Auto", None, 3, ["auto"]),
    ("plan", "order_solver"): ("best", None, 3),
    ("plan", "time_limit"): (math.nan, math.inf, -1, "x", True),
    ("plan", "threads"): (0, *(wrong for wrong in NO_WHOLE if wrong is not None)),
    ("plan", "reorder"): (1, "yes", None),
    ("bench", "runs"): (0, *NO_WHOLE),
    ("bench", "warmup"): NO_WHOLE,
    ("bench", "profiled_runs"): NO_WHOLE,
    ("bench", "min_seconds"): (math.nan, math.inf, -1, "x", None, True),
    ("bench", "threads"): (0, -1, "1", 1.5, True),
    ("bench", "seed"): NO_WHOLE,
    ("bench", "cuda_graph"): (1, None),
    ("bench", "inputs"): (3, [1], {"q": 3}, "x"),
    ("bench", "progress"): (3, "x"),
    ("verify", "against"): ("torch", 3, "Numpy", None),
    ("verify", "rtol"): (-1, math.nan, math.inf, "x", True),
    ("verify", "atol"): (-1, math.nan, math.inf, "x", True),
    ("verify", "seed"): NO_WHOLE,
    ("verify", "inputs"): (3, [1], {"q": np.ones(1)}, {"x": [[1.0, 2.0, 3.0, 4.0]]}),
    ("verify", "all_tensors"): (1, None),
    ("compare", "rtol"): (-1, *NO_NUMBER),
    ("compare", "atol"): (-1, *NO_NUMBER),
    ("Target", "kind"): ("rocm", "CUDA", None, 3),
    ("Target", "arch"): ("sm90", "90", None, 90),
    ("Target", "alignment"): (0, 96, "many", None, True),
    ("Target.of", "kind"): ("rocm", "CUDA", None, 3, []),
    ("Target.of", "arch"): ("sm90", "", 90, b"sm_90"),
    ("Target.of", "alignment"): (0, 96, "3KB", True, 2**41),
    ("CodeTarget.create", "kind"): ("rocm", "CUDA", None, 3, []),
    ("CodeTarget.create", "arch"): ("sm90", "", 90, b"sm_90"),
    ("CodeTarget.create", "mcpu"): ("x y", 3, b"native"),
    ("load", "cuda_graph"): (1, None, "no"),
}

SAID_OTHERWISE = {"kind": "target", "order_solver": "order solver", "dims": "dim", "inputs": "input"}


@pytest.mark.parametrize("call, argument", WRONG, ids=lambda item: str(item))
def test_wrong_arguments(file: Path, call: str, argument: str) -> None:
    for wrong in (*WRONG[call, argument], object() if argument != "solver" else 1j):
        with pytest.raises(memc.MemcError) as caught:
            CALLS[call](file, **{argument: wrong})
        message = str(caught.value)
        assert caught.value.exit_code == 2 and "\n" not in message and len(message) < 700, message
        plain = argument.replace("_", " ")
        assert argument in message or plain in message or SAID_OTHERWISE.get(argument, "-") in message, message
        assert "expected" in message or "no such" in message or "the model has no" in message, message


def test_numbers_of_numpy_are_taken() -> None:
    assert memc.plan(TENSORS, alignment=np.int64(8), capacity=np.int32(64), time_limit=np.float32(0.5)).peak == 32
    assert memc.plan([memc.Tensor("a", 0, np.int64(2), np.int32(10))], threads=np.int8(1)).peak == 10  # type: ignore[arg-type]
    assert compare(np.ones(2), np.ones(2), rtol=np.float32(0), atol=0).matches


@pytest.mark.parametrize(
    "tensor, says",
    [
        (3, "expected a memc.Tensor, got 3"),
        (memc.Tensor(3, 0, 2, 1), "id: expected text, got 3"),  # type: ignore[arg-type]
        (memc.Tensor("a", 0.5, 2, 1), "lower: expected a whole number, got 0.5"),  # type: ignore[arg-type]
        (memc.Tensor("a", 0, 2, "x"), "size: expected a whole number, got 'x'"),  # type: ignore[arg-type]
        (memc.Tensor("a", 0, 2, True), "size: expected a whole number, got True"),
        (memc.Tensor("a", 0, 2, math.nan), "size: expected a whole number, got nan"),  # type: ignore[arg-type]
        (memc.Tensor("a", 0, 2, 1, offset="x"), "offset: expected a whole number, got 'x'"),  # type: ignore[arg-type]
        (memc.Tensor("a", 0, 2, 1, alias=3), "alias: expected text, got 3"),  # type: ignore[arg-type]
        (memc.Tensor("a", 0, 2, 1, space=None), "space: expected text, got None"),  # type: ignore[arg-type]
    ],
)
def test_tensors_of_another_type(tensor: Any, says: str) -> None:
    with pytest.raises(memc.MemcError) as caught:
        memc.plan([TENSORS[0], tensor])
    assert f"tensors[1]: {says}" in str(caught.value)


@pytest.mark.parametrize("source", [3, None, {}, 1.5, object()])
def test_sources_of_another_type(source: Any) -> None:
    for call in (memc.compile, memc.import_onnx, memc.plan, memc.bench, memc.verify, memc.load, memc.parse):
        with pytest.raises(memc.MemcError, match="expected ") as caught:
            call(source)
        assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    with pytest.raises(memc.MemcError, match="pass pipeline: expected text"):
        memc.PassManager.parse(source)
