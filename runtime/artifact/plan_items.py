# SPDX-License-Identifier: Apache-2.0
"""Strings, numbers and lists of plan.json. Needs nothing but Python."""

from __future__ import annotations

from typing import Any

from memc.ir.messages import shown


def text(item: object) -> str:
    """A string of the plan. Raises TypeError for anything else."""
    if not isinstance(item, str):
        raise TypeError(f"expected a string, got {shown(item)}")
    return item


def whole(item: object) -> int:
    """A number of the plan, none of which is negative or broken. Raises TypeError or ValueError for anything else."""
    if type(item) is not int:
        raise TypeError(f"expected a whole number, got {shown(item)}")
    if item < 0:
        raise ValueError(f"expected a number from 0 on, got {item}")
    return item


def items(item: object) -> list[Any]:
    """A list of the plan. Raises TypeError for anything else."""
    if not isinstance(item, list):
        raise TypeError(f"expected a list, got {shown(item)}")
    return item
