# SPDX-License-Identifier: Apache-2.0
"""Commands side by side: what is checked, and what ends with an error or Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memc.compilers import Done, run_side_by_side


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_each_is_checked() -> None:
    found: list[Done] = []
    run_side_by_side([shell(f"echo out{at}; echo err{at} >&2; exit {at}") for at in range(6)], found.append)
    told = sorted((done.returncode, done.stdout, done.stderr) for done in found)
    assert told == [(at, f"out{at}\n", f"err{at}\n") for at in range(6)]


def test_an_error_ends_the_others(tmp_path: Path) -> None:
    """Also what a command has started itself, as drivers of compilers do."""

    def check(done: Done) -> None:
        if done.returncode:
            raise ValueError(done.stderr)

    commands = [
        shell("sleep 0.2; echo wrong >&2; exit 1"),
        *[shell("sleep 60 & wait")] * 4,
        shell(f"> {tmp_path}/begun"),
    ]
    before = time.monotonic()
    with pytest.raises(ValueError, match="wrong"):
        run_side_by_side(commands, check)
    assert time.monotonic() - before < 30 and not (tmp_path / "begun").exists()


WAITING = """
import sys
from memc.compilers import run_side_by_side
print("begun", flush=True)
run_side_by_side([["sh", "-c", "sleep 60 & wait"]] * 9, print)
"""


def test_ctrl_c() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(0.3)
    before = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert out == "" and error.rstrip().endswith("KeyboardInterrupt") and time.monotonic() - before < 20
