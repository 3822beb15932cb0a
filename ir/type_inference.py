# SPDX-License-Identifier: Apache-2.0
"""The ops' type rules by name: what making and printing ops ask, without knowing the definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .core import Attr
from .types import TensorType

InferFn = Callable[[Sequence[TensorType], Mapping[str, Attr]], Sequence[TensorType]]
"""(operand types, attributes) -> result types. Raises OpError saying what was expected and what it got."""

_RULES: dict[str, InferFn] = {}


def add_rule(name: str, rule: InferFn) -> None:
    """State the type rule of an op. Raises ValueError if it has one."""
    if name in _RULES:
        raise ValueError(f"op {name} is registered twice")
    _RULES[name] = rule


def is_registered(name: str) -> bool:
    """Whether an op of this name is defined."""
    return name in _RULES


def infer_types(name: str, operands: Sequence[TensorType], attrs: Mapping[str, Attr]) -> Sequence[TensorType]:
    """The result types of an op. Raises ValueError for one that is not registered, OpError if its contract is broken."""
    rule = _RULES.get(name)
    if rule is None:
        raise ValueError(f"op {name} is not registered")
    return rule(operands, attrs)
