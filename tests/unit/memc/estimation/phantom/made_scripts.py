# SPDX-License-Identifier: Apache-2.0
"""Scripts for the package `torch` that is none."""

from __future__ import annotations

from pathlib import Path

from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Script, run_script
from memc.estimation.recording import Recording

MIB = 2**20

GOOD = """
import sys, torch
SIZE = 1
torch.start()
address = 1 << 40
while True:
    torch.allocate(address, SIZE * 2**20)
    torch.step()
    address += 2 * 2**20
"""


def script(text: str, name: str = "train.py") -> str:
    """The path of a script in the current folder."""
    Path(name).write_text(text)
    return name


def run(text: str, **options: object) -> Recording:
    """Of a script with that text."""
    return run_script(Script(script(text), **options), gpu_named("h200"))  # type: ignore[arg-type]
