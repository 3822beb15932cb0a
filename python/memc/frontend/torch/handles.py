# SPDX-License-Identifier: Apache-2.0
"""Tensors of a program that writes in place, as values of an IR that does not.

A tensor is a `Handle`: the whole of a `Storage`, or a view of another handle. To write to a view is to make a new content of
what it is a view of; whoever reads another view of that afterwards has it computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memc.ir.build import IRBuilder
from memc.ir.core import Value


@dataclass
class Storage:
    """Bytes that tensors share."""

    value: Value
    """What they hold now."""
    name: str = ""
    """Of the parameter, buffer or input that they belong to; else empty."""
    version: int = 0
    """How often they were written to."""


@dataclass(frozen=True)
class View:
    """How a tensor lies in another."""

    take: Callable[[IRBuilder, Value], Value]
    """The view of a content."""
    put: Callable[[IRBuilder, Value, Value], Value] | None
    """A content, and what the view is to hold, as the new content; None where memc cannot write to such a view."""


@dataclass(eq=False)
class Handle:
    """A tensor of the program."""

    storage: Storage
    parent: Handle | None = None
    view: View | None = None
    cached: tuple[int, Value] | None = None
    """The storage's version, and the tensor's value then."""

    def read(self, b: IRBuilder) -> Value:
        """The tensor's value now."""
        if self.parent is None or self.view is None:
            return self.storage.value
        if self.cached is None or self.cached[0] != self.storage.version:
            self.cached = (self.storage.version, self.view.take(b, self.parent.read(b)))
        return self.cached[1]

    def write(self, b: IRBuilder, value: Value) -> bool:
        """Give the tensor another value. Returns whether memc can."""
        if self.parent is None or self.view is None:
            self.storage.value = value
            self.storage.version += 1
            return True
        if self.view.put is None:
            return False
        if not self.parent.write(b, self.view.put(b, self.parent.read(b), value)):
            return False
        self.cached = (self.storage.version, value)
        return True


def fresh(value: Value) -> Handle:
    """A tensor of its own."""
    return Handle(Storage(value))
