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
from typing import Any

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
        header = json.loads(text)
    except ValueError:
        raise ValueError("header is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("header is not an object")
    header.pop("__metadata__", None)
    return header, text


def _require_checksum(text: bytes, data: Array) -> None:
    """Raise ValueError if a file that `write` wrote has changed since."""
    if not text.startswith(_BEFORE):
        return
    end = len(_BEFORE) + len(_NO_CHECKSUM)
    said = text[len(_BEFORE) : end].decode(errors="replace")
    found = f"{zlib.crc32(data.data, zlib.crc32(_BEFORE + _NO_CHECKSUM.encode() + text[end:])):08x}"
    if said != found:
        raise ValueError(f"expected the checksum {said}, got {found}")


def types(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The element type, in the format's spelling, and the shape of each tensor. Raises ValueError as `read` does."""
    return {name: (str(entry["dtype"]), tuple(entry["shape"])) for name, entry in _header(path)[0].items()}


def read(path: Path) -> dict[str, Array]:
    """The bytes (u8) of each tensor, memory-mapped. Raises ValueError for a file that is not of this format, or damaged."""
    header, text = _header(path)
    start = 8 + len(text)
    data = np.memmap(path, np.uint8, mode="r", offset=start) if path.stat().st_size > start else np.empty(0, np.uint8)
    found: dict[str, Array] = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= data.size:
            raise ValueError(f"tensor {name} lies outside the file")
        found[name] = data[begin:end]
        if math.prod(entry["shape"]) == 0 and begin != end:
            raise ValueError(f"tensor {name} is empty but has bytes")
    _require_checksum(text, data)
    return found
