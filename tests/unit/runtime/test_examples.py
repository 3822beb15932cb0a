# SPDX-License-Identifier: Apache-2.0
"""The examples that run an artifact with TVM's runtime alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memc.ir.module import Module
from memc.runtime.execute.load import load

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def means(text: str) -> dict[str, float]:
    return {name: float(mean) for name, mean in re.findall(r"^(\w+): .*?mean ([-+.\de]+)", text, re.M)}


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expected(path: Path) -> dict[str, float]:
    return {name: float(value.mean()) for name, value in load(path)(np.zeros((4, 8), np.float32)).items()}


def test_python_without_memc(network: Module, plan: Callable, write: Callable) -> None:
    path = write(plan(network))
    script = EXAMPLES / "run_with_tvm_only.py"
    assert means(run(sys.executable, str(script), str(path))) == pytest.approx(expected(path), rel=1e-4)
    ban = f"import sys, runpy; sys.modules['memc'] = None; sys.argv = ['x', {str(path)!r}]; "
    run(
        sys.executable,
        "-c",
        f"{ban}\ntry:\n runpy.run_path({str(script)!r}, run_name='__main__')\nexcept SystemExit as e:\n assert not e.code, e",
    )


def test_python_says_so_when_it_needs_library_kernels(network: Module, plan: Callable, write: Callable) -> None:
    path = write(plan(network, kernels="auto"))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "run_with_tvm_only.py"), str(path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "--kernels generated" in done.stdout


@pytest.mark.skipif(not (shutil.which("c++") and shutil.which("cmake")), reason="needs a C++ compiler and CMake")
def test_cpp(network: Module, plan: Callable, write: Callable, tmp_path: Path) -> None:
    path = write(plan(network))
    build = tmp_path / "build"
    source = EXAMPLES / "run_with_tvm_only"
    run("cmake", "-S", str(source), "-B", str(build), f"-DPython3_EXECUTABLE={sys.executable}")
    run("cmake", "--build", str(build))
    assert means(run(str(build / "run_with_tvm_only"), str(path))) == pytest.approx(expected(path), rel=1e-4)


def test_loading_needs_neither_compiler_nor_frontend(network: Module, plan: Callable, write: Callable) -> None:
    """A process in which the other dependencies cannot be imported loads and runs a generated artifact."""
    path = write(plan(network))
    banned = ["lark", "onnx", "ortools", "typer", "rich", "ml_dtypes", "safetensors", "scipy_openblas32"]
    code = (
        f"import sys\nfor name in {banned!r}: sys.modules[name] = None\n"
        "import numpy as np\nfrom memc.runtime.execute.load import load\n"
        f"print({{k: float(v.mean()) for k, v in load({str(path)!r})(np.zeros((4, 8), np.float32)).items()}})\n"
    )
    env = {**os.environ, "TVM_USE_RUNTIME_LIB": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == pytest.approx(expected(path))
