# SPDX-License-Identifier: Apache-2.0
"""How often Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 100_000
"""Objects made between two searches. Python's own 700 cost a third of the time of passes: the IR is many objects that stay."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Search for garbage more rarely inside; never more often than whoever calls wants it, nor where that is never."""
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] == 0 or before[0] >= ALLOCATIONS:  # Another thread that compiles puts them back.
        yield
        return
    gc.set_threshold(ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
