# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while libraries are loaded, some of which make another error of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Have Ctrl-C end the process with one line, in whatever library it finds it; unless it does something else for this process, or
    this is not its main thread."""
    previous = _leave_at_once()
    try:
        yield
    finally:
        if previous is not None:
            signal.signal(signal.SIGINT, previous)


def _leave_at_once() -> Any:
    """What Ctrl-C did before; None if that stays."""

    def leave(number: int, frame: object) -> None:
        os.write(2, b"memc: error: interrupted\n")
        os._exit(130)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    try:
        return signal.signal(signal.SIGINT, leave)
    except ValueError:
        return None
