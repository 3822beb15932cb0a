# SPDX-License-Identifier: Apache-2.0
"""Placement problems and plans as CSV: the format of MiniMalloc (Moffitt, ASPLOS 2023), with a few more columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from memc.ir.errors import InvalidError, UnsupportedError, UsageError

from .tensors import ARENA, Tensor

_NAMES = {"buffer": "id", "buffer_id": "id", "start": "lower", "begin": "lower", "end": "upper"}
_REQUIRED = ("id", "lower", "upper", "size")
_KNOWN = (*_REQUIRED, "alignment", "offset", "hint", "gaps", "alias", "alias_offset", "space")


def read_csv(path: str | Path) -> tuple[list[Tensor], int]:
    """The tensors of a file and their alignment in bytes.

    Raises UsageError if the file cannot be read, InvalidError with file, line and field if it is malformed,
    UnsupportedError for gaps in lifetimes and for alignments that differ.
    """
    rows = _rows(path)
    header = [name.strip() for name in rows[0]]
    columns = [_NAMES.get(name, name) for name in header]
    for name in columns:
        if name not in _KNOWN:
            raise InvalidError(f"{path}:1: expected columns among {', '.join(_KNOWN)}, got `{name}`")
    for name in _REQUIRED:
        if columns.count(name) != 1:
            raise InvalidError(f"{path}:1: expected one column `{name}`, got {', '.join(header)}")
    if len(set(columns)) != len(columns):
        raise InvalidError(f"{path}:1: expected each column once, got {', '.join(header)}")
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(columns):
            raise InvalidError(f"{path}:{line}: expected {len(columns)} fields, got {len(row)}")
    table: dict[str, Sequence[str]] = {name: () for name in columns}
    table.update(zip(columns, zip(*rows[1:])))
    count = len(rows) - 1
    uppers = _whole(path, table, "upper")
    if "end" in header:
        uppers = [upper + 1 for upper in uppers]
    _refuse_gaps(path, table.get("gaps", ()))
    blanks = [""] * count
    tensors = [
        Tensor(id_, lower, upper, size, offset, alias or None, alias_offset or 0, space or ARENA)
        for id_, lower, upper, size, offset, alias, alias_offset, space in zip(
            table["id"],
            _whole(path, table, "lower"),
            uppers,
            _whole(path, table, "size"),
            _optional(path, table, "offset", count),
            table.get("alias", blanks),
            _optional(path, table, "alias_offset", count),
            table.get("space", blanks),
        )
    ]
    return tensors, _alignment(path, _optional(path, table, "alignment", count))


def plan_csv(tensors: Sequence[Tensor], offsets: Sequence[int]) -> str:
    """A plan as `id,lower,upper,size,offset`; with the columns of aliases and spaces if there are any."""
    more: list[str] = []
    if any(tensor.alias is not None for tensor in tensors):
        more += ["alias", "alias_offset"]
    if any(tensor.space != ARENA for tensor in tensors):
        more.append("space")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_REQUIRED, "offset", *more])
    for t, offset in zip(tensors, offsets):
        values = {"alias": t.alias or "", "alias_offset": t.alias_offset if t.alias else "", "space": t.space}
        writer.writerow([t.id, t.lower, t.upper, t.size, offset, *(values[name] for name in more)])
    return text.getvalue().rstrip("\n")


def _rows(path: str | Path) -> list[list[str]]:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig").rstrip()
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path}: expected CSV in UTF-8, got {error.reason} at byte {error.start}") from None
    if not text:
        raise InvalidError(f"{path}: expected a header such as id,lower,upper,size, got an empty file")
    try:
        return list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise InvalidError(f"{path}: expected CSV, got: {error}") from None


def _whole(path: str | Path, table: dict[str, Sequence[str]], name: str) -> list[int]:
    try:
        return list(map(int, table[name]))
    except ValueError:
        for line, text in enumerate(table[name], 2):
            _number(path, line, name, text)
        raise


def _number(path: str | Path, line: int, name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidError(f"{path}:{line}: {name}: expected a whole number, got `{text[:40]}`") from None


def _optional(path: str | Path, table: dict[str, Sequence[str]], name: str, count: int) -> list[int | None]:
    if name not in table:
        return [None] * count
    return [_number(path, line, name, text) if text.strip() else None for line, text in enumerate(table[name], 2)]


def _refuse_gaps(path: str | Path, gaps: Sequence[str]) -> None:
    for line, text in enumerate(gaps, 2):
        if text.strip():
            raise UnsupportedError(f"{path}:{line}: gaps: lifetimes with gaps are not supported, got `{text[:40]}`")


def _alignment(path: str | Path, values: Sequence[int | None]) -> int:
    chosen = 1
    for line, value in enumerate(values, 2):
        given = 1 if value is None else value
        if given < 1:
            raise InvalidError(f"{path}:{line}: alignment: expected 1 or more bytes, got {given}")
        if line == 2:
            chosen = given
        elif given != chosen:
            raise UnsupportedError(
                f"{path}:{line}: alignment: expected {chosen} as in line 2, got {given}; one for all"
            )
    return chosen
