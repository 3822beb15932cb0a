# SPDX-License-Identifier: Apache-2.0
"""What a terminal shows of a search while it goes on, and Ctrl-C in the middle of one."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def problem() -> str:
    """Buffers for which no search proves in some seconds that a plan is the best."""
    return str(Path(__file__).parents[4] / "benchmarks/data/minimalloc/D.1048576.csv")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "memc", *arguments]


def on_terminal(*arguments: str) -> str:
    """What a command writes to its standard error where that is a terminal, without escapes."""
    here, there = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=there, env=environment)
    os.close(there)
    shown = b""
    while True:
        try:
            part = os.read(here, 65536)
        except OSError:  # Nobody writes to it any more.
            break
        if not part:
            break
        shown += part
    os.close(here)
    assert process.wait() == 0
    return ESCAPES.sub(b"", shown).decode()


def test_a_terminal_shows_what_a_search_has_reached(problem: str) -> None:
    shown = on_terminal("plan", problem, "--time-limit", "2s")
    told = re.findall(r"plan -- addresses: (\d+) %, (\S+ \SiB) so far, (\S+ \SiB) at least, (\d) s left", shown)
    assert len(told) >= 3
    shares = [int(share) for share, *_ in told]
    assert shares == sorted(shares) and shares[-1] > shares[0]
    assert told[0][3] == "2" and told[-1][3] == "0"


def test_quiet_shows_nothing(problem: str) -> None:
    assert on_terminal("plan", problem, "--time-limit", "0.5s", "--quiet") == ""


def test_what_is_no_terminal_gets_nothing(problem: str) -> None:
    done = subprocess.run(command("plan", problem, "--time-limit", "0.5s"), capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and "lower bound" in done.stdout


@pytest.mark.parametrize("solver", ["auto", "mip"])
def test_ctrl_c_in_a_search(problem: str, solver: str) -> None:
    here, there = pty.openpty()  # Its progress tells when the search is on.
    arguments = command("plan", problem, "--time-limit", "100s", "--solver", solver)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=there, env=environment)
    os.close(there)
    shown = b""
    while shown.count(b"s left") < 3:
        shown += os.read(here, 65536)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    rest = os.read(here, 65536)
    os.close(here)
    assert (process.returncode, out) == (130, b"")
    lines = ESCAPES.sub(b"", rest).decode().split("\r\n")
    assert lines[-2:] == ["memc: error: interrupted", ""] or lines[-2].endswith("memc: error: interrupted")
