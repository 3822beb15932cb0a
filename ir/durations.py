# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them in options: `2s`, `500ms`, `1.5m`."""

from __future__ import annotations

import math
import re
from typing import ClassVar

from memc.ir.checked_options import Range

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Seconds(float):
    """A number of seconds, 0 or more, that prints as it is written in pipeline text.

    >>> Seconds.parse("500ms"), str(Seconds(2))
    (0.5, '2s')
    """

    rule: ClassVar[Range] = Range(least=0, most=1e9, what="a number of seconds")

    @staticmethod
    def parse(text: str) -> Seconds:
        """The duration `text` stands for; a bare number is seconds. Raises ValueError saying what was expected."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|min|h|)", text.strip())
        seconds = float(match[1]) * _SECONDS[match[2]] if match is not None else math.inf
        if not Seconds.rule.holds(seconds):
            raise ValueError("a duration such as 2s, 500ms or 1.5m")
        return Seconds(seconds)

    def __str__(self) -> str:
        return f"{float(self):.6f}".rstrip("0").rstrip(".") + "s"
