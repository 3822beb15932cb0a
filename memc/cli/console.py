# SPDX-License-Identifier: Apache-2.0
"""Where text goes: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from memc.driver import Progress
from memc.ir.errors import UsageError


def error_line(message: str) -> None:
    """An error on stderr: its first line names what, where, expected and got; an excerpt may follow."""
    print(f"memc: error: {message}", file=sys.stderr)


class _LogLine(logging.Formatter):
    """`memc: warning: message`, one line as errors are."""

    def format(self, record: logging.LogRecord) -> str:
        return f"memc: {record.levelname.lower()}: {record.getMessage()}"


def set_up_logging(verbose: int, quiet: bool) -> None:
    """Warnings by default, `-v` info, `-vv` debug, `-q` errors only."""
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LogLine())
    logger = logging.getLogger("memc")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """A spinner on stderr that names the stage; nothing when stderr is not a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage: None
        return
    with console.status("starting") as status:
        yield lambda stage: status.update(stage)


def stdout_console(no_color: bool) -> Console:
    """For results. Honours NO_COLOR; a fixed width where stdout is not a terminal, so that output is deterministic."""
    plain = no_color or not sys.stdout.isatty()
    return Console(no_color=plain, width=None if sys.stdout.isatty() else 100, highlight=False)


def write_text(target: str, text: str) -> None:
    """Write to a file, or to stdout for `-`. Raises UsageError."""
    if target == "-":
        print(text)
        return
    try:
        Path(target).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target}: cannot write: {error.strerror}") from None
