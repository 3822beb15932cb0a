# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them in options: `2s`, `500ms`, `1.5min`."""

from __future__ import annotations

import math
import re

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


class Seconds(float):
    """A number of seconds, 0 or more, that prints as it is written in pipeline text.

    >>> Seconds.parse("500ms"), str(Seconds(2))
    (0.5, '2s')
    """

    @staticmethod
    def parse(text: str) -> Seconds:
        """The duration `text` stands for; a bare number is seconds. Raises ValueError saying what was expected."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|min|h|)", text)
        if match is None or not math.isfinite(float(match[1])):
            raise ValueError("a duration such as 2s, 500ms or 1.5min")
        return Seconds(float(match[1]) * _SECONDS[match[2]])

    def __str__(self) -> str:
        return f"{float(self):.6f}".rstrip("0").rstrip(".") + "s"
