# SPDX-License-Identifier: Apache-2.0
"""Rows of a table that are measured on a GPU, each in a process of its own, and written down as they come."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from gpu_compare import card

Row = dict[str, Any]


def measured_apart(command: Sequence[str], seconds: float) -> tuple[Row, str]:
    """The row that a process prints as JSON in its last line, and what it says on stderr; a `note` says why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"note": "out of time"}, ""
    try:
        return dict(json.loads(done.stdout.splitlines()[-1])), done.stderr
    except (IndexError, ValueError):  # The others go on.
        return {"note": done.stderr.strip()[-600:] or f"exit code {done.returncode}"}, done.stderr


def write_down(rows: Sequence[Row], table: Callable[[Any], str], args: argparse.Namespace) -> None:
    """Print the last row, and write all of them to the files that were asked for."""
    print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"card": card(), "rows": rows}, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(table(rows) + "\n")
