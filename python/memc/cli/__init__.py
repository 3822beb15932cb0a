# SPDX-License-Identifier: Apache-2.0
"""The `memc` command: one module per verb, thin over the Python API."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A user's mistake gives one line on stderr, never a traceback."""
    previous = _leave_at_once_when_interrupted()
    from .app import main as run  # Seconds, in which libraries are loaded.

    if previous is not None:
        signal.signal(signal.SIGINT, previous)
    return run(arguments)


def _leave_at_once_when_interrupted() -> Any:
    """Have Ctrl-C end the process with one line, in whatever library it finds it; what it did before, or None if it does
    something else for this process, or this is not its main thread."""

    def leave(number: int, frame: object) -> None:
        os.write(2, b"memc: error: interrupted\n")
        os._exit(130)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    try:
        return signal.signal(signal.SIGINT, leave)
    except ValueError:
        return None
