# SPDX-License-Identifier: Apache-2.0
"""The quickest cells of benchmarks/compile_sweep.py, on models that the repository makes, and what the sweep does with faults."""

from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir import errors

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def sweep() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    return importlib.import_module("compile_sweep")


@pytest.fixture(scope="module")
def parts(sweep: ModuleType) -> ModuleType:
    return importlib.import_module("sweep_cells")


def quick() -> list[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    return list(importlib.import_module("compile_sweep").QUICK)


@pytest.mark.parametrize("cell", quick(), ids=lambda cell: cell.key.replace(" ", "-"))
def test_a_quick_cell(parts: ModuleType, cell: Any) -> None:
    """It compiles, its plan is right, and on the CPU its results are those of onnxruntime, or of numpy's step in f32."""
    if cell.target != "llvm" and shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    row = parts.measure(cell, parts.Folders())
    least_is_above = cell.mode == "training-half"
    assert row["status"] == "ok" or (least_is_above and row["status"] == "budget"), row.get("trace", row["detail"])
    assert ("error" in row) == (cell.target == "llvm" and row["status"] == "ok")


def test_wrong_results_are_found(parts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = parts.Cell("steps/mlp", "inference", "f32", "llvm", 2)
    plain = parts.reference_outputs

    def other(*given: Any) -> Any:
        return {name: np.asarray(array * np.float32(1.01)) for name, array in plain(*given).items()}

    monkeypatch.setattr(parts, "reference_outputs", other)
    row = parts.measure(cell, parts.Folders())
    assert row["status"] == "wrong" and "error 9.9e-03, allowed 1e-04" in row["detail"]


@pytest.mark.parametrize(("by_rounding", "status"), [(1e-6, "wrong"), (6e-3, "wrong"), (7e-3, "ok")])
def test_a_step_is_wrong_where_rounding_does_not_explain_it(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch, by_rounding: float, status: str
) -> None:
    """Where the step itself moves by as much when its states move by a unit in the last place, an element of a maximum, say,
    gave way to another."""
    found = iter([0.01, 0.0, by_rounding])
    monkeypatch.setattr(parts, "moved_error", lambda *given: next(found, 0.0))
    row = parts.measure(parts.Cell("steps/mlp", "training", "f32", "llvm", 2), parts.Folders())
    assert row["status"] == status, row["detail"]
    assert status == "ok" or f"1.0e-02, allowed {max(1e-3, 1.5 * by_rounding):.0e}" in row["detail"]


def test_states_are_moved_by_a_unit_in_the_last_place(parts: ModuleType) -> None:
    states = {"w": np.linspace(-3, 3, 1001, dtype=np.float32), "n": np.arange(3)}
    moved = parts.rounded_otherwise(states, 0)
    assert np.array_equal(moved["n"], states["n"]) and moved["w"].dtype == np.float32
    away = np.abs(moved["w"] - states["w"]) / np.spacing(np.abs(states["w"]) + np.float32(1e-30))
    assert away[states["w"] != 0].max() <= 2 and (away[states["w"] != 0] > 0).all()
    assert not np.array_equal(moved["w"], parts.rounded_otherwise(states, 1)["w"])


def test_a_budget_error_must_name_a_least_peak_above_the_budget(parts: ModuleType) -> None:
    cell = parts.Cell("steps/mlp", "training-half", "f32", "llvm", 2)
    text = "memory budget of 90 bytes (90 B) cannot be met: the least reachable peak is {} bytes (...)"
    assert parts._least(cell, text.format(100), {"budget": 90})[0] == "budget"
    assert parts._least(cell, text.format(80), {"budget": 90})[0] == "error"
    assert parts._least(cell, "out of memory", {"budget": 90})[0] == "error"


def test_a_kernel_that_gives_way_to_plainer_ones_is_a_fault(parts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = memc.compile

    def compile(*given: Any, **options: Any) -> Any:
        logging.getLogger("memc").warning(
            "conv: the kernel's schedule does not compile (...); using a plain, slower one"
        )
        return plain(*given, **options)

    monkeypatch.setattr(memc, "compile", compile)
    row = parts.measure(parts.Cell("steps/mlp", "inference", "f32", "llvm", 2), parts.Folders())
    assert row["status"] == "fallback" and row["detail"].startswith("conv: ") and row["error"] < 1e-5


def test_what_nvcc_rejects_is_a_fault(parts: ModuleType) -> None:
    cell = parts.Cell("silero/silero_vad", "training", "f32", "sm_75", 2)
    assert parts._says_unsupported(errors.UnsupportedError("unsupported: node `a` (Foo)"), cell)
    assert not parts._says_unsupported(errors.UnsupportedError("arch sm_75: nvcc failed: ptxas fatal"), cell)
    assert not parts._says_unsupported(errors.UnsupportedError("add: no kernel compiles for it: why"), cell)
    nothing = errors.UsageError("build-gradient: nothing to train: result `y` depends on no weight")
    assert parts._says_unsupported(nothing, cell)
    assert not parts._says_unsupported(nothing, parts.Cell("own/unet", "training", "f32", "llvm", 2))
    assert not parts._says_unsupported(errors.UsageError("loss: expected another"), cell)


WORKER = """
import dataclasses, os, subprocess, sys, time

def measure(cell, folders):
    if cell.batch == 2:
        subprocess.Popen(["sleep", "60"])
        time.sleep(60)
    if cell.batch == 3:
        print("about to", "abort", flush=True)
        os.abort()
    if cell.batch == 16:
        sys.exit(5)
    return {**dataclasses.asdict(cell), "status": "ok", "detail": str(len(os.sched_getaffinity(0))), "seconds": 0.1}
"""


def test_a_hang_and_a_death_lose_one_cell(
    sweep: ModuleType, parts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cell_worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sweep, "measure", importlib.import_module("cell_worker").measure)
    todo = [parts.Cell("a/b", "inference", "f32", "llvm", batch) for batch in (1, 2, 3, 7, 16)]
    begin = time.monotonic()
    sweep.sweep(todo, parts.Folders(), tmp_path / "rows.jsonl", jobs=len(os.sched_getaffinity(0)), limit=8)
    assert time.monotonic() - begin < 50
    rows = sweep.read_rows(tmp_path / "rows.jsonl")
    assert [rows[cell.key]["status"] for cell in todo] == ["ok", "hang", "died", "ok", "died"]
    assert rows[todo[0].key]["detail"] == "1"  # core
    assert rows[todo[2].key]["detail"] == "exit code -6: about to abort"
    assert "exit code 5" in rows[todo[4].key]["detail"]
    assert "| a/b | inference | f32 | 2 ok; **died at 3, 16**; **hang at 2** |" in sweep.table(list(rows.values()))


def test_a_stopped_sweep_goes_on(sweep: ModuleType, parts: ModuleType, tmp_path: Path) -> None:
    """Rows are kept, a line cut short is measured again, and a failure is measured again where that is asked for."""
    out = tmp_path / "rows.jsonl"
    row = {
        "model": "steps/mlp",
        "mode": "inference",
        "precision": "f32",
        "target": "llvm",
        "detail": "",
        "seconds": 1.0,
    }
    lines = [json.dumps({**row, "batch": 1, "status": "ok"}), json.dumps({**row, "batch": 2, "status": "crash"})]
    out.write_text("\n".join([*lines, json.dumps({**row, "batch": 3, "status": "ok"})[:40]]))
    command = [sys.executable, str(BENCHMARKS / "compile_sweep.py"), "--out", str(out), "--model", "steps/mlp"]
    command += ["--mode", "inference", "--precision", "f32", "--target", "llvm", "--batch", "1", "2", "3"]

    def left(*further: str) -> list[str]:
        done = subprocess.run([*command, "--list", *further], capture_output=True, text=True, check=True)
        return [line.split()[-1] for line in done.stdout.splitlines()]

    assert left() == ["b3"]
    assert left("--retry") == ["b2", "b3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout  # For the crash that is there.
    assert "[1/1] ok          steps/mlp inference f32 llvm b3" in done.stdout
    assert sweep.read_rows(out)["steps/mlp inference f32 llvm b3"]["error"] < 1e-5


def test_every_model_of_the_repository_is_in_the_sweep(sweep: ModuleType) -> None:
    named = {
        f"{kind}/{name}"
        for kind, module, table in (
            ("own", "sweep_models", "BUILDERS"),
            ("small", "small_models", "MODELS"),
            ("steps", "training_models", "MODELS"),
        )
        for name in getattr(importlib.import_module(module), table)
    }
    assert set(sweep.all_models(sweep.Folders())) == named
