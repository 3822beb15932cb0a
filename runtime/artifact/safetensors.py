# SPDX-License-Identifier: Apache-2.0
"""The safetensors file format, as far as artifacts need it: tensors by name, memory-mapped on reading.

Format: 8 bytes length of the header (little endian), the header as JSON, then the tensors' bytes one after another
(https://huggingface.co/docs/safetensors). Written here because running an artifact must not need the package.

The header's metadata has a CRC-32 of the header, with zeros in the checksum's own place, and of the tensors' bytes, so that a
file that was damaged on its way does not give wrong results. Files without it, as others write them, are read too.
"""

from __future__ import annotations

import json
import math
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CODES = {
    "f64": "F64",
    "f32": "F32",
    "f16": "F16",
    "bf16": "BF16",
    "i64": "I64",
    "i32": "I32",
    "i16": "I16",
    "i8": "I8",
    "u64": "U64",
    "u32": "U32",
    "u16": "U16",
    "u8": "U8",
    "bool": "BOOL",
}
"""The format's name of each element type of the IR."""

ITEMSIZES = {code: int("".join(c for c in code if c.isdigit()) or 8) // 8 for code in CODES.values()}
"""Bytes of an element, by the format's name of its type."""

Entry = tuple[str, str, Sequence[int], int, Callable[[], Array]]
"""Name, element type, shape, bytes, and where to get the row-major data."""


_BEFORE = b'{"__metadata__":{"crc32":"'
"""How the header begins, up to the eight digits of the checksum."""

_NO_CHECKSUM = "00000000"


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write tensors in the given order; each one's data is fetched only when its turn comes. Names must differ.

    The file appears complete or not at all: what was there stays until the new one is written.
    """
    path = path.resolve()  # A link stays one.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _write(partial, list(entries))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write(path: Path, entries: Sequence[Entry]) -> None:
    header: dict[str, Any] = {"__metadata__": {"crc32": _NO_CHECKSUM}}
    end = 0
    for name, dtype, shape, nbytes, _ in entries:
        header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    checksum = zlib.crc32(text)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, _, _, nbytes, fetch in entries:
            data = np.ascontiguousarray(fetch())
            if data.nbytes != nbytes:
                raise ValueError(f"tensor {name} has {data.nbytes} bytes, expected {nbytes}")
            if nbytes:
                raw = data.reshape(-1).view(np.uint8).data
                checksum = zlib.crc32(raw, checksum)
                file.write(raw)
        file.seek(8 + len(_BEFORE))
        file.write(f"{checksum:08x}".encode())


def _header(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header's entries by name, and its text."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ValueError("header is longer than the file")
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("header is nested too deeply") from None
    except json.JSONDecodeError:
        raise ValueError("header is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("header is not an object")
    header.pop("__metadata__", None)
    _require_sense(header, size - 8 - length)
    return header, text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names differ. Raises ValueError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("header names a tensor twice")
    return found


def _require_sense(header: dict[str, Any], nbytes: int) -> None:
    """Raise ValueError unless each tensor has a type, a shape and its bytes, which follow one another and fill the file, as the
    format demands."""
    for name, entry in header.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
            raise ValueError(f"tensor {name} has no element type")
        shape, offsets = entry.get("shape"), entry.get("data_offsets")
        if not _sizes(shape):
            raise ValueError(f"tensor {name} has no shape")
        if not _sizes(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= nbytes:
            raise ValueError(f"tensor {name} lies outside the file")
        itemsize = ITEMSIZES.get(entry["dtype"])
        has = offsets[1] - offsets[0]
        if itemsize is not None and has != math.prod(shape) * itemsize:
            raise ValueError(f"tensor {name} has {has} bytes, expected {math.prod(shape) * itemsize}")
    end = 0
    for begin, stop, name in sorted((*entry["data_offsets"], name) for name, entry in header.items()):
        if begin != end:
            raise ValueError(f"tensor {name} begins at byte {begin}, expected {end}")
        end = stop
    if end != nbytes:
        raise ValueError(f"file has {nbytes} bytes of data, expected {end}")


def _sizes(value: Any) -> TypeGuard[list[int]]:
    """Whether a list of whole numbers from 0 on."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _require_checksum(text: bytes, data: Array, always: bool) -> None:
    """Raise ValueError if a file that `write` wrote has changed since; `always` says that it did write it."""
    if not text.startswith(_BEFORE):
        if always:
            raise ValueError("header has no checksum")
        return
    end = len(_BEFORE) + len(_NO_CHECKSUM)
    said = text[len(_BEFORE) : end].decode(errors="replace")
    found = f"{zlib.crc32(data.data, zlib.crc32(_BEFORE + _NO_CHECKSUM.encode() + text[end:])):08x}"
    if said != found:
        raise ValueError(f"expected the checksum {said}, got {found}")


def types(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The element type, in the format's spelling, and the shape of each tensor. Raises ValueError as `read` does."""
    return {name: (str(entry["dtype"]), tuple(entry["shape"])) for name, entry in _header(path)[0].items()}


def read(path: Path, *, checksum: bool = False) -> dict[str, Array]:
    """The bytes (u8) of each tensor, memory-mapped. Raises ValueError for a file that is not of this format, or damaged; with
    `checksum` also for one without, which `write` did not write."""
    header, text = _header(path)
    start = 8 + len(text)
    data = np.memmap(path, np.uint8, mode="r", offset=start) if path.stat().st_size > start else np.empty(0, np.uint8)
    found: dict[str, Array] = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = data[begin:end]
    _require_checksum(text, data, checksum)
    return found
