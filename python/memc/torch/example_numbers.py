# SPDX-License-Identifier: Apache-2.0
"""Arguments of a step that are no tensors: the program was exported with their values in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

from memc.ir.errors import UsageError
from memc.ir.messages import shown

Numbers = Mapping[Union[int, str], Any]
"""By position or name."""


def numbers_of(example: Sequence[Any] | Mapping[str, Any]) -> Numbers:
    """Numbers, texts and None in a batch."""
    items = example.items() if isinstance(example, Mapping) else enumerate(example)
    return {place: value for place, value in items if value is None or isinstance(value, (bool, int, float, str))}


def without_numbers(
    numbers: Numbers, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A batch's tensors, by position and by name. Raises UsageError where a number is another than in the example."""
    given: dict[Union[int, str], Any] = {}
    given.update(kwargs.items())
    given.update(enumerate(args))
    for place, value in numbers.items():
        now = given.get(place, value)
        if type(now) is not type(value) or now != value:
            raise UsageError(
                f"step: argument {place} was {shown(value)} when the step was compiled and is {shown(now)} now: compile again"
            )
    tensors = tuple(value for place, value in enumerate(args) if place not in numbers)
    return tensors, {name: value for name, value in kwargs.items() if name not in numbers}
