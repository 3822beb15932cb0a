# SPDX-License-Identifier: Apache-2.0
"""An op's plan by the names of its fields, as text has it, and attributes that belong there."""

from __future__ import annotations

from dataclasses import fields

from ..copies import STARTS
from ..core import FUSED, UNPLANNED, Attr, OpPlan
from ..ops.shared.op_def import lookup
from .printer import print_attr

FOREIGN_FIELDS = ("in_place", "mirror", "recompute")
"""What can be decided about a foreign op. Its attributes may have any other name, which means what its framework says."""

FIELDS = tuple(field.name for field in fields(OpPlan))


def is_foreign(name: str) -> bool:
    """Whether memc knows no op of that name."""
    return lookup(name) is None and name != FUSED


def planned_attribute(op: str, name: str, value: Attr) -> str | None:
    """What to say of an attribute of an op that is named like a field of its plan, where older text had it; None if it is
    not."""
    if name == "lane" and op in STARTS:
        return None  # A copy's lane is part of what it means.
    if name not in (FOREIGN_FIELDS if is_foreign(op) else FIELDS):
        return None
    plan = print_attr(_flat(value)) if isinstance(getattr(UNPLANNED, name), tuple) else print_attr(value)
    return f"expected `{name}` in the plan of {op}, got it among the attributes: write plan {{{name} = {plan}}}"


def _flat(value: Attr) -> tuple[Attr, ...]:
    """Lists in lists as one: so `recompute` is now."""
    return tuple(inner for item in value for inner in _flat(item)) if isinstance(value, tuple) else (value,)
