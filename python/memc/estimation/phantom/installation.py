# SPDX-License-Identifier: Apache-2.0
"""The PyTorch of a Python interpreter, found without importing it here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from memc.ir.errors import UnsupportedError, UsageError

VARIABLE = "MEMC_PHANTOM_PYTHON"
"""Names the interpreter with PyTorch, where that is not the one that runs memc."""

_ASK = """
import sys
sys.path.pop(0)  # The current folder, which a script's own run does not look in.
import json, importlib.util
found = {"python": sys.executable, "torch": None, "paths": sys.path}
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin is not None:
    from pathlib import Path
    folder = Path(spec.origin).parent
    values = {}
    version = folder / "version.py"
    if version.is_file():
        exec(compile(version.read_text(), str(version), "exec"), values)
    found |= {"torch": str(folder), "version": str(values.get("__version__", "")), "cuda": values.get("cuda")}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Installation:
    """A PyTorch with CUDA."""

    python: str
    torch: Path
    """The folder of the package."""
    version: str
    site: Path
    """The folder that holds the packages of CUDA's libraries."""

    @property
    def libraries(self) -> list[Path]:
        """PyTorch's own libraries."""
        return sorted((self.torch / "lib").glob("*.so"))

    @property
    def includes(self) -> list[Path]:
        """Folders of CUDA's headers."""
        return [self.site / "nvidia" / name / "include" for name in ("cu13", "cudnn")]

    def cuda_library(self, name: str) -> Path:
        """A library of CUDA 13."""
        return self.site / "nvidia/cu13/lib" / name


def find_installation(python: str | None) -> Installation:
    """The PyTorch of an interpreter: the one given, else that of MEMC_PHANTOM_PYTHON, else the one running.

    Raises UsageError for no interpreter, UnsupportedError for one without a PyTorch that has CUDA 13.
    """
    given = python or os.environ.get(VARIABLE) or sys.executable
    found = shutil.which(given)
    if found is None:
        raise UsageError(f"python: expected a Python interpreter, got {given}, which cannot be run")
    try:
        done = subprocess.run([found, "-c", _ASK], capture_output=True, text=True, timeout=60)
        answer = dict(json.loads(done.stdout.strip().splitlines()[-1]))
    except (OSError, ValueError, TypeError, IndexError, subprocess.TimeoutExpired):
        raise UsageError(f"python: expected a Python interpreter, got {given}, which does not answer as one") from None
    how = f"pip install --force-reinstall torch==2.11.0 there, or name another interpreter with --python or {VARIABLE}"
    if answer["torch"] is None:
        raise UnsupportedError(f"{given}: expected PyTorch with CUDA 13 in this Python, got none; {how}")
    cuda = answer.get("cuda")
    if not isinstance(cuda, str) or not cuda.startswith("13"):
        got = f"PyTorch {answer.get('version') or '(unknown)'} " + (f"for CUDA {cuda}" if cuda else "without CUDA")
        raise UnsupportedError(f"{given}: expected PyTorch with CUDA 13, got {got}; {how}")
    torch = Path(answer["torch"])
    made = Installation(answer["python"], torch, answer["version"], torch.parent)
    for path in (made.cuda_library("libcudart.so.13"), *made.includes):
        if not path.exists():
            raise UnsupportedError(
                f"{given}: expected CUDA's libraries as packages beside PyTorch, got no {path.relative_to(made.site)}; {how}"
            )
    return made
