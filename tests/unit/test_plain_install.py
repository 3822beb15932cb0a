# SPDX-License-Identifier: Apache-2.0
"""After a plain install, the repository's root does not hide the package from Python that is started there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memc.native import library_path

ROOT = Path(__file__).resolve().parents[2]

HIDE_EDITABLE = """\
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
"""
"""What the site does at its start: an install in place is found whatever the path says."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as the wheel lays it out, after `[tool.scikit-build.wheel.packages]`."""
    folder = tmp_path_factory.mktemp("site")
    table = (ROOT / "pyproject.toml").read_text().split("[tool.scikit-build.wheel.packages]\n")[1].split("\n[")[0]
    packages = dict(re.findall(r'^"(.+)" = "(.+)"$', table, re.MULTILINE))
    assert packages["memc"] == "python/memc" and {"memc/ir", "memc/passes", "memc/runtime"} < set(packages)
    for name, source in packages.items():
        shutil.copytree(ROOT / source, folder / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (folder / "memc" / library_path().name).symlink_to(library_path())
    (folder / "sitecustomize.py").write_text(HIDE_EDITABLE)
    return folder


def python(site: Path, *arguments: str) -> str:
    """What Python prints that is started in the root."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import(site: Path) -> None:
    text = (
        "import memc, memc.ir.core, memc.passes.manager, memc.runtime.code_target; memc.compile; print(memc.__file__)"
    )
    assert python(site, "-c", text).strip() == str(site / "memc/__init__.py")


def test_command(site: Path) -> None:
    assert "Usage: memc" in python(site, "-m", "memc", "--help")
    assert "%y = exp(%x)" in python(site, "-c", COMMAND)


COMMAND = """
import io, sys
from memc.cli import main
sys.stdin = io.TextIOWrapper(io.BytesIO(b'''func @main(%x: f32[4] {role = input}) -> f32[4] {
  %y = exp(%x) : f32[4]
  return %y
}
'''))
sys.exit(main(["opt", "-"]))
"""


def test_pytest(site: Path) -> None:
    """A test run finds the package that is installed, not the folders beside the tests."""
    found = python(site, "-m", "pytest", "-p", "no:cacheprovider", "-v", "tests/unit/ir/test_cost_model.py")
    assert "8 passed" in found


def test_no_name_in_the_root_is_the_package() -> None:
    assert not [path for path in ROOT.iterdir() if path.stem == "memc"]
