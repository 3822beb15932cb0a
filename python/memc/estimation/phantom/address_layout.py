# SPDX-License-Identifier: Apache-2.0
"""Where a process that is started has its memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_ADDR_NO_RANDOMIZE = 0x0040000
_ASK = 0xFFFFFFFF


@contextmanager
def same_addresses() -> Iterator[None]:
    """Processes that are started in a `with` block lay out their memory alike each time, where the system allows it.

    The phantom device's memory lies between the process's own, and where a segment lies decides which of two free blocks is taken:
    so an estimate is the same each time.
    """
    try:
        personality = ctypes.CDLL(None).personality
    except (OSError, AttributeError):  # Not Linux.
        yield
        return
    personality.argtypes = [ctypes.c_ulong]
    before = personality(_ASK)
    if before >= 0:
        personality(before | _ADDR_NO_RANDOMIZE)  # A sandbox may refuse it.
    try:
        yield
    finally:
        if before >= 0:
            personality(before)
