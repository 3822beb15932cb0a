# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/: they run, and what they say is right. (run_with_tvm_only has its tests under runtime/.)"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*command: str, cwd: Path, path: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_compile_and_run(tmp_path: Path) -> None:
    printed = run(str(EXAMPLES / "compile_and_run.py"), "out", cwd=tmp_path)
    assert "results match" in printed and "gap 0.00 %" in printed
    unoptimized, arena = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) bytes", printed)[:2])
    # Two activations of 64 KiB are live together.
    assert 2 * 65536 <= arena < unoptimized / 2
    assert (tmp_path / "out" / "model.memc" / "plan.json").is_file()


def test_custom_pass(tmp_path: Path) -> None:
    printed = run(str(EXAMPLES / "custom_pass.py"), cwd=tmp_path)
    assert "in-place,assign-addresses: 8,256 bytes\nsink,in-place,assign-addresses: 4,160 bytes\n" in printed
    assert printed.index("%mask = broadcast") > printed.index("%c = tanh")


def test_custom_pass_as_an_entry_point(tmp_path: Path) -> None:
    package = tmp_path / "site"
    information = package / "my_package-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[memc.passes]\nsink = my_module:Sink\n")
    (package / "my_module.py").write_text((EXAMPLES / "custom_pass.py").read_text())
    text = "func @main(%x: f32[512] {role = input}) -> f32[512] {\n  %a = exp(%x) : f32[512]\n"
    text += "  %b = neg(%x) : f32[512]\n  %c = add(%b, %x) : f32[512]\n  %d = add(%a, %c) : f32[512]\n  return %d\n}\n"
    (tmp_path / "in.memir").write_text(text)
    printed = run("-m", "memc", "opt", "in.memir", "-p", "sink{smallest=64}", cwd=tmp_path, path=str(package))
    names = re.findall(r"%(\w) = ", printed)
    assert names == ["b", "c", "a", "d"]
    assert "sink" in run("-m", "memc", "opt", "--list-passes", cwd=tmp_path, path=str(package))


def test_plan_only(tmp_path: Path) -> None:
    printed = run(str(EXAMPLES / "plan_only.py"), cwd=tmp_path)
    rows = re.findall(r"%\S+ +(\d+) bytes at +(\d+), live in \[(\d+), (\d+)\)", printed)
    places = [tuple(int(n) for n in row) for row in rows]
    assert len(places) == 7
    for index, (size, offset, lower, upper) in enumerate(places):
        assert offset % 256 == 0
        for other_size, other_offset, other_lower, other_upper in places[:index]:
            together = lower < other_upper and other_lower < upper
            assert not together or offset + size <= other_offset or other_offset + other_size <= offset
    # While op 2 runs, three tensors of 128 KiB and the workspace of 64 KiB are live.
    assert max(offset + size for size, offset, _, _ in places) == 3 * 131072 + 65536
    assert "arena 458,752 bytes" in printed and "lower bound 458,752 bytes" in printed


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"), (
        "stored without outputs"
    )
    (tmp_path / "tour.py").write_text("\n\n".join(cells) + "\nassert losses[-1] < 0.6 * losses[0], losses\n")
    printed = run("tour.py", cwd=tmp_path)
    arenas = [int(n.replace(",", "")) for n in re.findall(r"-O\d: arena +([\d,]+) B", printed)]
    assert len(arenas) == 4 and arenas == sorted(arenas, reverse=True) and arenas[2] < arenas[0] / 2
    assert "cannot be met: the least reachable peak is" in printed
