# SPDX-License-Identifier: Apache-2.0
"""How far long work has come: searches and builds tell it, and whoever asked for the work may listen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from .sizes import format_size


@dataclass(frozen=True)
class Reached:
    """What some work has reached so far."""

    work: str
    """What it is, such as `addresses` or `kernels`."""
    share: float | None = None
    """Of the work that there is at most, 0 to 1; of the time under a time limit. None where that is not known."""
    best: int | None = None
    """Bytes of the best plan so far."""
    bound: int | None = None
    """Bytes that no plan is below, as far as is known."""
    seconds_left: float | None = None
    """Under a time limit."""

    def __str__(self) -> str:
        parts = [
            None if self.share is None else f"{min(int(100 * self.share), 99)} %",
            None if self.best is None else f"{format_size(self.best)} so far",
            None if self.bound is None or self.best is None else f"{format_size(self.bound)} at least",
            None if self.seconds_left is None else f"{self.seconds_left:.0f} s left",
        ]
        return f"{self.work}: {', '.join(filter(None, parts)) or 'begun'}"


Listener = Callable[[Reached], None]
"""Called some times a second while work goes on."""

_listener: ContextVar[Listener | None] = ContextVar("memc_progress", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Have a function called with what work reaches that is done inside, on this thread or in its context. None: nobody."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def listener() -> Listener | None:
    """Who listens here."""
    return _listener.get()


def tell(reached: Reached) -> None:
    """Tell who listens, if anybody does."""
    found = _listener.get()
    if found is not None:
        found(reached)
