# SPDX-License-Identifier: Apache-2.0
"""Placement problems and plans as CSV: the format of MiniMalloc (Moffitt, ASPLOS 2023), with a few more columns."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from memc.ir.errors import InvalidError, UnsupportedError
from memc.ir.files import read_bytes
from memc.ir.spaces import ARENA
from memc.solvers.placement import Lives

from .gaps import gaps_text, lives_of
from .tensors import MAX_ALIGNMENT, Int64s, Tensor, TensorColumns, shown

_NAMES = {"buffer": "id", "buffer_id": "id", "start": "lower", "begin": "lower", "end": "upper"}
_REQUIRED = ("id", "lower", "upper", "size")
_KNOWN = (*_REQUIRED, "alignment", "offset", "hint", "gaps", "alias", "alias_offset", "space")
_TEXTS = ("id", "alias", "space", "gaps")
_DEFAULTS = {"alignment": 1, "offset": -1, "alias_offset": 0}
"""The values of empty fields in columns of numbers."""

_PLAIN = re.compile(r"[-+\d\s,]*", re.ASCII)
"""Whole numbers in decimal digits."""

ROWS = 1 << 16
"""Rows read at a time."""


def read_csv(path: str | Path) -> tuple[TensorColumns, int]:
    """The tensors of a file and their alignment in bytes.

    Raises InvalidError if the file cannot be read, or with file, line and field if it is malformed,
    UnsupportedError for gaps of a part of the bytes only.
    """
    parts = _parts(path, _text(path))
    widths, fields = next(parts)
    header = [name.strip() for name in fields[: widths[0]]]
    table = _Table(path, _columns(path, header))
    table.add(widths[1:], fields[widths[0] :])
    for widths, fields in parts:
        table.add(widths, fields)
    uppers = table.numbers("upper")
    if "end" in header:
        uppers = uppers + 1
    tensors = TensorColumns(
        table.texts["id"],
        table.numbers("lower"),
        uppers,
        table.numbers("size"),
        table.numbers("offset", -1),
        table.texts.get("alias") if any(table.texts.get("alias", ())) else None,
        table.numbers("alias_offset", 0),
        [space or ARENA for space in table.texts["space"]] if any(table.texts.get("space", ())) else None,
        _lives(path, table, uppers, int("end" in header)),
    )
    alignments = table.numbers("alignment", 1)
    if (alignments == alignments[:1]).all():
        return tensors, int(alignments[0]) if len(alignments) else 1
    return replace(tensors, alignments=alignments), 1


def _lives(path: str | Path, table: _Table, uppers: Int64s, last: int) -> list[Lives] | None:
    """Of each tensor: when it is live, if there are gaps; None if there are none at all."""
    texts = table.texts.get("gaps", [])
    if not any(map(str.strip, texts)):
        return None
    found: list[Lives] = []
    for line, (text, lower, upper) in enumerate(zip(texts, table.numbers("lower").tolist(), uppers.tolist()), 2):
        if "@" in text:
            raise UnsupportedError(
                f"{path}:{line}: gaps: expected gaps of all bytes, such as 3-7, got {shown(text)} with a window of bytes"
            )
        try:
            found.append(lives_of(text, lower, upper, last))
        except ValueError as error:
            raise InvalidError(f"{path}:{line}: gaps: {error}, got {shown(text)}") from None
    return found


def plan_csv(tensors: Sequence[Tensor], offsets: Sequence[int]) -> str:
    """A plan as `id,lower,upper,size,offset`; with the columns of aliases, spaces, alignments and gaps if there are any."""
    t = TensorColumns.of(tensors)
    names = [*_REQUIRED, "offset"]
    numbers = [t.lowers.tolist(), t.uppers.tolist(), t.sizes.tolist(), offsets]
    columns: list[Iterable[str]] = [_quoted(t.ids), *(map(str, column) for column in numbers)]
    if t.aliases is not None:
        within = t.alias_offsets.tolist() if t.alias_offsets is not None else [0] * len(t)
        names += ["alias", "alias_offset"]
        columns += [_quoted(t.aliases), [str(offset) if alias else "" for alias, offset in zip(t.aliases, within)]]
    if t.spaces is not None:
        names.append("space")
        columns.append(_quoted(t.spaces))
    if t.alignments is not None:
        names.append("alignment")
        columns.append([str(alignment) if alignment else "" for alignment in t.alignments.tolist()])
    if t.lives is not None:
        names.append("gaps")
        columns.append(map(gaps_text, t.lives))
    return "\n".join([",".join(names), *map(",".join, zip(*columns))])


def _quoted(texts: Sequence[str]) -> Sequence[str]:
    """Fields as CSV writes them: in quotes where they hold what has a meaning there."""
    special = re.compile('[",\r\n]')
    if not special.search("".join(texts)):
        return texts
    return ['"' + text.replace('"', '""') + '"' if special.search(text) else text for text in texts]


def _text(path: str | Path) -> str:
    try:
        text = read_bytes(path).decode("utf-8-sig").rstrip()
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path}: expected CSV in UTF-8, got {error.reason} at byte {error.start}") from None
    if not text:
        raise InvalidError(f"{path}: expected a header such as id,lower,upper,size, got an empty file")
    return text


def _parts(path: str | Path, text: str) -> Iterator[tuple[list[int], list[str]]]:
    """Many rows at a time: how many fields each has, and all fields one after another.

    Lists of fields for every row would take most of the time and memory, so text without quotes is cut as a whole.
    """
    if '"' in text:
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            while part := list(islice(rows, ROWS)):
                yield list(map(len, part)), list(chain.from_iterable(part))
        except csv.Error as error:
            raise InvalidError(f"{path}:{rows.line_num}: expected CSV with quotes in pairs, got: {error}") from None
        return
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for begin in range(0, len(lines), ROWS):
        chosen = lines[begin : begin + ROWS]
        yield [line.count(",") + 1 for line in chosen], ",".join(chosen).split(",")


def _columns(path: str | Path, header: Sequence[str]) -> list[str]:
    """The columns by their first names."""
    names = [_NAMES.get(name, name) for name in header]
    for name in names:
        if name not in _KNOWN:
            raise InvalidError(f"{path}:1: expected columns among {', '.join(_KNOWN)}, got {shown(name)}")
    for name in _REQUIRED:
        if names.count(name) != 1:
            raise InvalidError(f"{path}:1: expected one column `{name}`, got {', '.join(header)}")
    if len(set(names)) != len(names):
        raise InvalidError(f"{path}:1: expected each column once, got {', '.join(header)}")
    return names


class _Table:
    """The columns of the rows so far."""

    def __init__(self, path: str | Path, names: Sequence[str]) -> None:
        self.path = path
        self.names = names
        self.count = 0
        self.texts: dict[str, list[str]] = {name: [] for name in names if name in _TEXTS}
        self._parts: dict[str, list[Int64s]] = {name: [] for name in names}

    def add(self, widths: Sequence[int], fields: Sequence[str]) -> None:
        """Append rows of so many fields each."""
        first, width = self.count + 2, len(self.names)
        if widths.count(width) != len(widths):
            line, got = next((line, got) for line, got in enumerate(widths, first) if got != width)
            raise InvalidError(f"{self.path}:{line}: expected {width} fields, got {got}")
        for column, name in enumerate(self.names):
            texts = fields[column::width]
            if name in _TEXTS:
                self.texts[name] += texts
            elif name in _REQUIRED:
                self._parts[name].append(self._whole(name, texts, first))
            elif name in _DEFAULTS:
                self._parts[name].append(self._optional(name, texts, first))
        if "alignment" in self.names and widths:
            self._align(self._parts["alignment"][-1], first)
        self.count += len(widths)

    def numbers(self, name: str, default: int = 0) -> Int64s:
        """A column of numbers; of the default if there is none."""
        if name not in self.names:
            return np.full(self.count, default, np.int64)
        return np.concatenate(self._parts[name]) if self.count else np.zeros(0, np.int64)

    def _whole(self, name: str, texts: Sequence[str], first: int) -> Int64s:
        try:
            if not _PLAIN.fullmatch(",".join(texts)):  # What `int` takes beyond digits, such as 1_000.
                raise ValueError
            return np.fromiter(map(int, texts), np.int64, len(texts))
        except (ValueError, OverflowError):
            return np.array([self._number(name, text, line) for line, text in enumerate(texts, first)], np.int64)

    def _optional(self, name: str, texts: Sequence[str], first: int) -> Int64s:
        """Numbers of at least 0; the default where nothing is given."""
        default = _DEFAULTS[name]
        if not any(map(str.strip, texts)):
            return np.full(len(texts), default, np.int64)
        values = self._whole(name, [text if text.strip() else "0" for text in texts], first)
        for index in np.flatnonzero(values < 0)[:1]:
            self._fail(first + index, name, f"expected bytes from 0 to 2**62, got {values[index]}")
        values[[not text.strip() for text in texts]] = default
        return values

    def _number(self, name: str, text: str, line: int) -> int:
        try:
            if not _PLAIN.fullmatch(text) or "," in text:
                raise ValueError
            number = int(text) if len(text) < 1000 else 2**64
        except ValueError:
            self._fail(line, name, f"expected a whole number, got {shown(text)}")
        if not -(2**63) <= number < 2**63:
            expected = "times below 2**62" if name in ("lower", "upper") else "bytes from 0 to 2**62"
            self._fail(line, name, f"expected {expected}, got {shown(text)}")
        return number

    def _align(self, values: Int64s, first: int) -> None:
        for index in np.flatnonzero(values < 1)[:1]:
            self._fail(first + index, "alignment", f"expected 1 or more bytes, got {values[index]}")
        for index in np.flatnonzero(values > MAX_ALIGNMENT)[:1]:
            self._fail(first + index, "alignment", f"expected 2**40 bytes at most, got {values[index]}")

    def _fail(self, line: int, name: str, message: str) -> NoReturn:
        raise InvalidError(f"{self.path}:{line}: {name}: {message}")
