# SPDX-License-Identifier: Apache-2.0
"""The order in which a model's modules have their parameters, and in which they are moved to the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


def registered(read: Sequence[str], stored: Iterable[str]) -> tuple[str, ...]:
    """The tensors that ops read, in the order in which the model has them.

    Exporters store parameters in that order, by their names; those that they put together or name otherwise come after what was read
    before them.
    """
    wanted = set(read)
    found = [name for name in stored if name in wanted]
    known = set(found)
    before: str | None = None
    after: dict[str | None, list[str]] = {}
    for name in read:
        if name not in known:
            after.setdefault(before, []).append(name)
        else:
            before = name
    return (*after.get(None, ()), *(each for name in found for each in (name, *after.get(name, ()))))


@dataclass
class _Module:
    own: list[str] = field(default_factory=list)
    children: dict[str, _Module] = field(default_factory=dict)

    def moved(self) -> list[str]:
        """Those of the modules inside first."""
        return [*(name for child in self.children.values() for name in child.moved()), *self.own]


def moved(names: Iterable[str]) -> tuple[str, ...]:
    """The order of `Module.to`, from that in which the model has its tensors: modules inside a module come before its own tensors.

    What has no name of a module is taken to be beside what is before it.
    """
    root = module = _Module()
    for name in names:
        path = name.split(".")
        if len(path) > 1:
            module = root
            for part in path[:-1]:
                module = module.children.setdefault(part, _Module())
        module.own.append(name)
    return tuple(root.moved())
