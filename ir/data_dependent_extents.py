# SPDX-License-Identifier: Apache-2.0
"""Results whose size depends on data, cut to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memc.ir.errors import UsageError


@dataclass(frozen=True)
class Extent:
    """A returned number, i64[], that says how far data goes: what has a size that depends on data has room for `most`."""

    count: int
    """The number's position among the function's results."""
    most: int
    """What there is room for. A greater number found more, and then no result is right."""
    cuts: tuple[tuple[int, int], ...] = ()
    """Results (by position) and their axis along which only so many elements are data: what lies behind is padding."""


def cut(results: Mapping[str, Any], extents: Sequence[Extent]) -> dict[str, Any]:
    """Results by name, all of them and in order, without the counts and cut to those. What they hold is like numpy's arrays.

    Raises UsageError for a count above what there is room for.
    """
    names, counts = list(results), {extent.count for extent in extents}
    found = dict(results)
    for extent in extents:
        count = int(results[names[extent.count]])
        if count > extent.most:
            raise UsageError(
                f"{names[extent.count]}: expected at most {extent.most}, which there is room for, got {count} in this run; "
                "compile with a larger --max-size"
            )
        for result, axis in extent.cuts:
            name = names[result]
            found[name] = found[name][(*(slice(None),) * axis, slice(0, count))]
    return {name: found[name] for number, name in enumerate(names) if number not in counts}
