# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the middle of each verb: one line, exit code 130, and no file that is not whole."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

EVENTS = str(Path(__file__).parents[3] / "data/events/resnet50_b32_sgd.json.gz")

IN_A_CALL = """
import os, signal, sys

file, name = sys.argv[1].split(":")

def look(frame, event, argument):
    if event == "call" and frame.f_code.co_name == name and frame.f_code.co_filename.endswith("/" + file):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(look)
from memc.cli import main
sys.exit(main(sys.argv[2:]))
"""
"""Runs a command, and interrupts it where a function is called."""


@pytest.mark.parametrize(
    ("place", "arguments"),
    [
        ("onnx/importer.py:import_onnx", "compile MODEL --dim batch=2 -o made"),
        ("placement/assign_addresses.py:apply", "compile MODEL --dim batch=2 -o made"),
        ("codegen/compile_units.py:compiled_units", "compile MODEL --dim batch=2 -o made"),
        ("artifact/write.py:write", "compile MODEL --dim batch=2 -o made"),
        ("execute/executable.py:finished", "run ARTIFACT --input x=1 --output made"),
        ("measure/references.py:run_onnxruntime", "verify MODEL --dim batch=2"),
        ("measure/benchmark.py:_timed", "bench ARTIFACT --runs 5 --json made"),
        ("estimation/replay.py:simulate", "estimate EVENTS --json made"),
        ("solvers/placement.py:solve", "plan p.csv -o made"),
        ("solvers/placement.py:solve", "report p.csv -o made"),
        ("picture/page.py:page_of", "report p.csv -o made"),
        ("placement/assign_addresses.py:apply", "opt p.memir -p assign-addresses -o made"),
        ("memc/installation.py:_gpu", "doctor"),
    ],
)
def test_ctrl_c_in_a_verb(place: str, arguments: str, model: str, artifact: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,64\nb,1,3,128\n")
    (tmp_path / text).rename(tmp_path / "p.memir")
    named = {"MODEL": model, "ARTIFACT": artifact, "EVENTS": EVENTS}
    given = [named.get(word, word) for word in arguments.split()]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALL, place, *given], capture_output=True, text=True, cwd=tmp_path
    )
    # Python ends itself by the signal, which shells take for 130, if it had come in code that is made while a program runs.
    assert done.returncode in (130, -signal.SIGINT)
    assert (done.stdout, done.stderr) == ("", "memc: error: interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.memir"]
