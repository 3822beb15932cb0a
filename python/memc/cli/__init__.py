# SPDX-License-Identifier: Apache-2.0
"""The `memc` command: one module per verb, thin over the Python API."""

from __future__ import annotations

from collections.abc import Sequence

from memc.garbage import few_collections

from .interrupts import leaving_at_once

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A user's mistake gives one line on stderr, never a traceback."""
    with few_collections():  # Libraries and IR are many objects that stay.
        with leaving_at_once():
            from .app import main as run  # Which loads libraries.
        return run(arguments)
