# SPDX-License-Identifier: Apache-2.0
"""Parsing of `name=value` items; apart from other values, so that a verb that needs no more loads no more."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memc.ir.errors import UsageError


def parse_pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` items as a dict. The name may hold `=`-free text of any kind, such as `serving_default:0`."""
    pairs: dict[str, str] = {}
    for item in items:
        name, found, value = item.partition("=")
        if not found or not name:
            raise UsageError(f"{option} {item}: expected NAME=VALUE")
        if name in pairs:
            raise UsageError(f"{option} {item}: `{name}` is given twice")
        pairs[name] = value
    return pairs


def parse_dims(items: Iterable[str]) -> dict[str, int]:
    """`--dim batch=4` items as a dict of positive integers."""
    dims: dict[str, int] = {}
    for name, value in parse_pairs(items, "--dim").items():
        if not re.fullmatch(r"0*\d{1,10}", value, re.ASCII) or int(value.lstrip("0") or "0") >= 2**31:
            raise UsageError(f"--dim {name}={value}: expected a whole number from 0 to 2147483647")
        dims[name] = int(value.lstrip("0") or "0")
    return dims
