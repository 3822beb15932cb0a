# SPDX-License-Identifier: Apache-2.0
"""The dynamic symbols of a 64-bit ELF library, read without tools of a compiler."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from memc.ir.errors import InvalidError

_DYNAMIC_SYMBOLS = 11
"""The type of the section that holds them (SHT_DYNSYM)."""


@dataclass(frozen=True)
class DynamicSymbols:
    """Names that a library takes from others, and names that it offers."""

    undefined: frozenset[str]
    defined: frozenset[str]


def dynamic_symbols(path: Path) -> DynamicSymbols:
    """Raises InvalidError for a file that is no 64-bit little-endian ELF library with sections."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
            raise InvalidError(f"{path}: expected a 64-bit ELF library, got another file")
        try:
            return _read(data)
        except (struct.error, ValueError, IndexError) as error:
            raise InvalidError(f"{path}: expected an ELF library's tables, got damaged data: {error}") from None


def _read(data: mmap.mmap) -> DynamicSymbols:
    (table,) = struct.unpack_from("<Q", data, 40)
    entry, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + entry * at) for at in range(count)]
    undefined: set[str] = set()
    defined: set[str] = set()
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        offset, nbytes, link = section[4], section[5], section[6]
        names = data[sections[link][4] : sections[link][4] + sections[link][5]]
        for name, _, _, where, _, _ in struct.iter_unpack("<IBBHQQ", data[offset : offset + nbytes]):
            text = names[name : names.index(b"\0", name)].decode()
            if text:
                (undefined if where == 0 else defined).add(text)
    return DynamicSymbols(frozenset(undefined), frozenset(defined))
