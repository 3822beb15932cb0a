# SPDX-License-Identifier: Apache-2.0
"""The safetensors file format, as far as artifacts need it: tensors by name, memory-mapped on reading.

Format: 8 bytes length of the header (little endian), the header as JSON, then the tensors' bytes one after another
(https://huggingface.co/docs/safetensors). Written here because running an artifact must not need the package.
"""

from __future__ import annotations

import json
import math
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


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write tensors in the given order; each one's data is fetched only when its turn comes. Names must differ."""
    listed = list(entries)
    header: dict[str, Any] = {}
    end = 0
    for name, dtype, shape, nbytes, _ in listed:
        header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, _, _, nbytes, fetch in listed:
            data = np.ascontiguousarray(fetch())
            if data.nbytes != nbytes:
                raise ValueError(f"tensor {name} has {data.nbytes} bytes, expected {nbytes}")
            if nbytes:
                file.write(data.reshape(-1).view(np.uint8).data)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header's entries by name, and where the tensors' bytes begin."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ValueError("header is longer than the file")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise ValueError("header is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("header is not an object")
    header.pop("__metadata__", None)
    return header, 8 + length


def types(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The element type, in the format's spelling, and the shape of each tensor. Raises ValueError as `read` does."""
    return {name: (str(entry["dtype"]), tuple(entry["shape"])) for name, entry in _header(path)[0].items()}


def read(path: Path) -> dict[str, Array]:
    """The bytes (u8) of each tensor, memory-mapped. Raises ValueError for a file that is not of this format."""
    header, start = _header(path)
    data = np.memmap(path, np.uint8, mode="r", offset=start) if path.stat().st_size > start else np.empty(0, np.uint8)
    found: dict[str, Array] = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= data.size:
            raise ValueError(f"tensor {name} lies outside the file")
        found[name] = data[begin:end]
        if math.prod(entry["shape"]) == 0 and begin != end:
            raise ValueError(f"tensor {name} is empty but has bytes")
    return found
