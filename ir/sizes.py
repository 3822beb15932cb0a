# SPDX-License-Identifier: Apache-2.0
"""Byte counts as people write and read them."""

from __future__ import annotations

import re

from memc.ir.errors import UsageError

_UNITS = {
    "": 1,
    "B": 1,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


def parse_size(text: str) -> int:
    """Bytes of a size such as `4GiB`, `1024MiB`, `1.5G` or `4096`.

    KiB, MiB, GiB and the bare letters are powers of 1024; KB, MB, GB are powers of 1000. Raises UsageError.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text, re.ASCII)
    unit = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or unit is None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise UsageError(
            f"size `{shown}`: expected a number of bytes with an optional unit, for example 4GiB or 512MiB"
        )
    whole, _, part = match.group(1).partition(".")
    if len(whole.lstrip("0")) > 19 or (size := _bytes(whole, part, unit)) >= 2**63:
        raise UsageError(f"size `{text[:40]}`: expected less than 2**63 bytes")
    return size


class Size(int):
    """A number of bytes that may be given as text.

    >>> Size.parse("4KiB") + 0
    4096
    """

    @staticmethod
    def parse(text: str) -> Size:
        """The bytes `text` stands for. Raises ValueError saying what was expected."""
        try:
            return Size(parse_size(text))
        except UsageError:
            raise ValueError("a size such as 4GiB") from None


def _bytes(whole: str, part: str, unit: int) -> int:
    """`whole`.`part` units, rounded down."""
    return int(whole.lstrip("0") or "0") * unit + int(float(f"0.{part or 0}") * unit)


def format_size(nbytes: int) -> str:
    """A byte count with a binary unit and three significant places: 1.50 MiB."""
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{nbytes} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    return f"{amount:.2f} TiB"


def align(nbytes: int, alignment: int) -> int:
    """`nbytes` rounded up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment
