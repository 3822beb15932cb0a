# SPDX-License-Identifier: Apache-2.0
"""The `with` blocks of a region with planned memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from .engine import Engine

Key = TypeVar("Key", contravariant=True)


class Region(Protocol[Key]):
    """What steps are steps of."""

    def begin_step(self, key: Key, is_keyed: bool) -> None: ...

    def end_step(self, completed: bool) -> None: ...


class Step:
    """One step of a region."""

    def __init__(self, region: Region[Key], key: Key, is_keyed: bool) -> None:
        self._begin: Callable[[], None] = lambda: region.begin_step(key, is_keyed)
        self._end = region.end_step

    def __enter__(self) -> Step:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(kind is None)


class Interruption:
    """A part of a step that is not replayed."""

    def __init__(self, engines: Callable[[], Sequence[Engine]]) -> None:
        """`engines`: of the region, which is asked for them when the block begins."""
        self._engines = engines

    def __enter__(self) -> Interruption:
        self._interrupted = self._engines()
        for engine in self._interrupted:
            engine.interrupt()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in self._interrupted:
            engine.resume()
