# SPDX-License-Identifier: Apache-2.0
"""Where text goes: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from memc.ir.errors import UsageError
from memc.ir.progress import listening

if TYPE_CHECKING:
    from memc.driver import Progress  # Which loads the whole compiler.


REACHED = " -- "
"""What parts a stage from what it has reached."""


def set_up_streams() -> None:
    """Make standard output and error usable whatever they are.

    A closed one gets its descriptor back, so that no file that is opened later takes its place and is written to: output
    then cannot be written, which is an error once there is some, and what goes to standard error is dropped. Characters
    that the terminal's encoding lacks are escaped.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)  # Takes the lowest that is free.
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def error_line(message: str) -> None:
    """An error on stderr: its first line names what, where, expected and got; an excerpt may follow."""
    plain = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in message)
    print(f"memc: error: {plain}", file=sys.stderr)


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
    """A spinner on stderr with the stage, what a search within it has reached, and the time since the stage began; nothing when
    stderr is not a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage: None
        return
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with Display(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as shown:
        task = shown.add_task("starting", total=None)
        now = ""

        def show(stage: str) -> None:
            nonlocal now
            before, now = now, stage.partition(REACHED)[0]
            if now == before:
                shown.update(task, description=stage)
            else:
                shown.reset(task, description=stage)

        with listening(
            lambda reached: show(f"{now}{REACHED}{reached}")
        ):  # Outside of a compilation, which tells itself.
            yield show


def stdout_console(no_color: bool) -> Console:
    """For results. Honours NO_COLOR; a fixed width where stdout is not a terminal, so that output is deterministic."""
    plain = no_color or not sys.stdout.isatty()
    return Console(no_color=plain, width=None if sys.stdout.isatty() else 100, highlight=False)


def write_text(target: str, text: str) -> None:
    """Write UTF-8 to a file, or to stdout for `-`. Raises UsageError."""
    data = (text + "\n").encode("utf-8")
    if target == "-":
        if isinstance(sys.stdout, io.TextIOWrapper):  # The same bytes as in a file, whatever the terminal's encoding.
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        else:
            print(text)
        return
    try:
        Path(target).write_bytes(data)
    except (OSError, ValueError) as error:
        raise UsageError(f"{target}: cannot write: {getattr(error, 'strerror', None) or error}") from None


def print_times(timings: list[tuple[str, float]]) -> None:
    """Seconds per pass on stderr."""
    for name, seconds in timings:
        print(f"{seconds:9.4f} s  {name}", file=sys.stderr)
