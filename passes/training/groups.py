# SPDX-License-Identifier: Apache-2.0
"""Parameter groups: weights whose optimizer has options, or a learning rate, of its own.

A group is text: name patterns, `|` between them, then `: ` and options: `'*.bias|norm.*: weight-decay=0 rate=0.1'`. `rate` is what the
learning rate is multiplied by; with `own-rate=true` the group's rate is an input of its own, `learning_rate.1` for the first group.
A weight belongs to the first group that has its name.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from memc.ir.checked_options import F32_MOST, hints
from memc.ir.errors import UsageError
from memc.ir.messages import nearest
from memc.passes.training.optimizers import TAKES, Optimizer


@dataclass(frozen=True)
class Group:
    """Weights of one setting."""

    patterns: tuple[str, ...]
    optimizer: Optimizer
    rate: float = 1.0
    """What the learning rate is multiplied by."""
    own_rate: bool = False
    """Whether its rate is an input of its own."""

    def has(self, weight: str) -> bool:
        """Whether a weight of a name belongs to it, if to none before."""
        return any(fnmatch.fnmatchcase(weight, pattern) for pattern in self.patterns)


def parse_groups(texts: Sequence[str], optimizer: Optimizer) -> tuple[Group, ...]:
    """The groups of texts, with what they do not say as the optimizer has it. Raises UsageError."""
    return tuple(_parsed(text, optimizer) for text in texts)


def group_of(weight: str, groups: Sequence[Group]) -> int:
    """The number of a weight's group from 1; 0 for one that is in none."""
    return next((number for number, group in enumerate(groups, 1) if group.has(weight)), 0)


def patterns_of(text: str) -> tuple[str, ...]:
    """The patterns of a group's text. Raises UsageError."""
    names, found, _ = text.partition(": ")
    patterns = tuple(name for name in names.strip().split("|") if name)
    if not found or not patterns:
        raise UsageError(f"group {text!r}: expected PATTERN|PATTERN: NAME=VALUE ..., such as '*.bias: weight-decay=0'")
    return patterns


def _parsed(text: str, optimizer: Optimizer) -> Group:
    patterns = patterns_of(text)
    options: dict[str, Any] = {}
    rate, own = 1.0, False
    takes = [name for name in TAKES[optimizer.kind] if name != "no_decay"]
    for item in text.partition(": ")[2].split():
        name, _, value = item.partition("=")
        name = name.replace("-", "_")
        if name == "rate":
            rate = _number(text, name, value)
            if not 0 <= rate <= F32_MOST:
                raise UsageError(f"group {text!r}: rate: expected a number from 0 on, got {value}")
        elif name == "own_rate":
            own = _switch(text, name, value)
        elif name in takes:
            is_switch = bool in (hints(Optimizer)[name], *get_args(hints(Optimizer)[name]))
            options[name] = _switch(text, name, value) if is_switch else _number(text, name, value)
        else:
            known = [each.replace("_", "-") for each in ("rate", "own_rate", *takes)]
            near = nearest(name.replace("_", "-"), known)
            raise UsageError(f"group {text!r}: expected options among {', '.join(known)}, got {item!r}{near}")
    try:
        return Group(patterns, replace(optimizer, **options), rate, own)
    except UsageError as error:
        raise UsageError(f"group {text!r}: {error}") from None


def _number(text: str, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"group {text!r}: {name.replace('_', '-')}: expected a number, got {value!r}") from None


def _switch(text: str, name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise UsageError(f"group {text!r}: {name.replace('_', '-')}: expected true or false, got {value!r}")
    return value == "true"
