# SPDX-License-Identifier: Apache-2.0
"""Parsing of what is typed after options: dims, shapes, tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from memc.ir.arrays import native
from memc.ir.core import Array
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.sizes import parse_size
from memc.ir.types import TensorType
from memc.measure.random_data import random_array, require_memory

from .pairs import parse_pairs


def parse_shapes(text: str | None) -> dict[str, tuple[int, ...]]:
    """`--input-shapes "x:[1,3,224,224] y:[1,2]"` as a dict. An input's name may itself hold a colon."""
    shapes: dict[str, tuple[int, ...]] = {}
    rest = (text or "").strip()
    while rest:
        match = re.match(r"(?P<name>[^\[\]]+?):\s*\[(?P<dims>[\d\s,]*)\][\s,]*", rest, re.ASCII)
        if match is None:
            raise UsageError(f'--input-shapes: expected "name:[1,3,224,224] other:[1,2]", got `{rest}`')
        name = match.group("name").strip()
        dims = match.group("dims").replace(",", " ").split()
        if any(len(d) > 18 for d in dims):
            raise UsageError(f"--input-shapes: `{name}`: expected extents below 10**18, got {max(dims, key=len)[:40]}")
        if name in shapes:
            raise UsageError(f"--input-shapes: `{name}` is given twice")
        shapes[name] = tuple(int(d) for d in dims)
        rest = rest[match.end() :]
    return shapes


def load_array(path: str) -> Array:
    """The array of an .npy file. Raises UsageError."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, OverflowError, MemoryError, BadZipFile) as error:
        raise UsageError(f"{path}: cannot read as .npy: {' '.join(str(error).split())}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path}: expected one array in an .npy file, got an archive")
    return native(array, path)


def parse_binding(text: str) -> Any:
    """`@file.npy`, a number, true/false, or a JSON list."""
    if text.startswith("@"):
        return load_array(text[1:])
    try:
        value = json.loads(text)
        array = np.asarray(value)
    except (ValueError, TypeError, RecursionError):
        raise UsageError(f"value `{text[:60]}`: expected @file.npy, a number, true, false or a JSON list") from None
    if array.dtype.kind not in "biuf":
        raise UsageError(f"value `{text}`: expected numbers, got {array.dtype}")
    return array


def parse_bindings(items: Iterable[str]) -> dict[str, Any]:
    return {name: parse_binding(value) for name, value in parse_pairs(items, "--bind").items()}


_SPLAT = re.compile(r"(?:(?P<dims>\d+(?:x\d+)*)x)?(?P<dtype>[a-z]\w+)=(?P<value>\S+)")


def parse_tensor(text: str, type: TensorType, name: str, seed: int = 0) -> Array:
    """The data of input `name`: `@file.npy`, `2x3xf32=1`, `random`, a number (fills the tensor) or a JSON list.
    Raises UsageError, and DeviceMemoryError if this machine's memory cannot hold the tensor."""
    require_memory(f"input `{name}`", type.nbytes)
    if text == "random":
        return random_array(type, np.random.default_rng(seed))
    splat = _SPLAT.fullmatch(text)
    if splat:
        dims = tuple(int(d) for d in (splat.group("dims") or "").split("x") if d)
        if dims != type.shape or splat.group("dtype") != type.dtype.value:
            raise UsageError(f"input `{name}`: expected {type}, got {text}")
        text = splat.group("value")
    array = np.asarray(parse_binding(text))
    if array.ndim == 0 and type.rank and not text.startswith("@"):
        return np.full(type.shape, _converted(array, type, name, text))
    if array.shape != type.shape:
        raise UsageError(f"input `{name}`: expected shape {list(type.shape)}, got {list(array.shape)}")
    if array.dtype != type.dtype.numpy:
        if text.startswith("@"):
            raise UsageError(f"input `{name}`: expected {type.dtype.value}, got {array.dtype} in {text[1:]}")
        array = _converted(array, type, name, text)
    return array


def _converted(array: Array, type: TensorType, name: str, text: str) -> Array:
    """Typed numbers as the input's element type, rounded if that is of floats. Raises UsageError if it does not hold them."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = array.astype(type.dtype.numpy)
        exact = type.dtype.numpy.kind in "iub"
        lost = found.astype(array.dtype) != array if exact else np.isinf(found) & np.isfinite(array)
    if lost.any():
        raise UsageError(f"input `{name}`: expected {type.dtype.value}, got {array[lost].flat[0]} in `{text}`")
    return found


def require_known(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for an input that there is not."""
    names = list(known)
    for name in given:
        if name not in names:
            raise UsageError(f"--input {name}: no such input; expected {', '.join(names) or 'none'}")


def parse_inputs(texts: Mapping[str, str], types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """The data of the inputs that were given. Raises UsageError for a name that there is not, or data of another type."""
    require_known(texts, types)
    return {name: parse_tensor(text, types[name], name, seed) for name, text in texts.items()}


def outputs_target(items: Iterable[str], names: list[str]) -> dict[str, Path]:
    """`--output y.npy` (only output) or `--output y=y.npy` items as paths by output name."""
    targets: dict[str, Path] = {}
    for item in items:
        name, found, path = item.rpartition("=")
        if not found:
            if len(names) != 1:
                raise UsageError(f"--output {item}: the model has outputs {', '.join(names)}; write NAME=FILE")
            name = names[0]
        if name not in names:
            raise UsageError(f"--output {item}: no output `{name}`; expected one of {', '.join(names)}")
        targets[name] = Path(path)
    return targets


def size_or_share(text: str) -> str | int:
    """Bytes of a size; a share such as `50%` stays text, as what it is of is not known here. Raises UsageError."""
    return text if text.rstrip().endswith("%") else parse_size(text)


def parse_seconds(text: str, option: str) -> Seconds:
    """A duration such as `2s`, `500ms`, `1.5m` or `2`. Raises UsageError."""
    try:
        return Seconds.parse(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: expected {error}") from None
