# SPDX-License-Identifier: Apache-2.0
"""Recordings in JSON, and traces of tensors in CSV."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from memc.ir.errors import InvalidError
from memc.ir.files import read_bytes
from memc.ir.messages import shown

from .events import EventList
from .recording import MOST_ADDRESS, MOST_BYTES, Action, Recording, known_name, recording_of, whole_number

_PEAKS = ("allocated", "requested", "reserved", "active", "inactive_split")


def read_json(path: str | Path) -> Recording:
    """The recording of a .json or .json.gz file: `events`, a list of [action, address, bytes, stream], and where they are known
    `alloc`, the allocator's settings, `peak`, what PyTorch counted, and `torch`, its version.

    Raises InvalidError if the file cannot be read, or naming file, event and field if it is malformed.
    """
    data = _json(path)
    if not isinstance(data, dict) or not isinstance(data.get("events"), list):
        raise InvalidError(
            f"{path}: expected an object with `events`, a list of [action, address, bytes, stream], got {shown(data)}"
        )
    settings = data.get("alloc")
    if settings is not None and not isinstance(settings, str):
        raise InvalidError(f"{path}: alloc: expected the allocator's settings as text, got {shown(settings)}")
    actions = [_action(path, at, entry) for at, entry in enumerate(data["events"])]
    version = data.get("torch") or ""
    if not isinstance(version, str):
        raise InvalidError(f"{path}: torch: expected a version of PyTorch's as text, got {shown(version)}")
    found = recording_of(str(path), actions, alloc_conf=settings or "", peaks=_peaks(path, data.get("peak")))
    return replace(found, torch_version=version)


def _json(path: str | Path) -> Any:
    raw = read_bytes(path)
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return json.loads(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidError(f"{path}: expected JSON in gzip, got damaged data: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{path}: expected JSON, got: {error}") from None


def _action(path: str | Path, at: int, entry: object) -> Action:
    where = f"{path}: event {at}"
    if not isinstance(entry, list) or len(entry) not in (4, 5):
        raise InvalidError(f"{where}: expected [action, address, bytes, stream], got {shown(entry)}")
    name = known_name(entry[0], where)
    address = whole_number(entry[1], 0, MOST_ADDRESS, f"{where}: address")
    nbytes = whole_number(entry[2], 0, MOST_BYTES, f"{where}: bytes")
    stream = whole_number(entry[3], 0, MOST_ADDRESS, f"{where}: stream")
    pool = whole_number(entry[4], 0, 2**31, f"{where}: pool") if len(entry) == 5 else 0
    return Action(name, address, nbytes, stream, pool)


def _peaks(path: str | Path, peaks: object) -> Mapping[str, int]:
    if peaks is None:
        return {}
    if not isinstance(peaks, dict):
        raise InvalidError(f"{path}: peak: expected an object of bytes by name, got {shown(peaks)}")
    return {name: whole_number(peaks[name], 0, MOST_BYTES, f"{path}: peak: {name}") for name in _PEAKS if name in peaks}


def read_trace(path: str | Path) -> Recording:
    """The events of a CSV file of tensors with lifetimes (`id,lower,upper,size`): at each step, frees come before requests.

    Raises what `read_csv` raises, and InvalidError for tensors that share bytes, or have gaps, as no allocator's blocks do.
    """
    from memc.planning.csv_file import read_csv  # With it comes the compiler, which nothing else here needs.

    tensors, _ = read_csv(path)
    if tensors.aliases is not None or tensors.lives is not None:
        raise InvalidError(f"{path}: expected tensors without aliases and gaps, as an allocator has blocks")
    rows = list(zip(tensors.lowers.tolist(), tensors.uppers.tolist(), tensors.sizes.tolist()))
    steps: list[tuple[int, int, int]] = []
    for number, (lower, upper, _) in enumerate(rows):
        steps += [(lower, 1, number), (upper, 0 if upper > lower else 2, number)]
    events = EventList()
    blocks: dict[int, int] = {}
    for _, what, number in sorted(steps):
        if what == 1:
            blocks[number] = events.allocate(rows[number][2])
        else:
            events.free(blocks[number])
    return Recording(events.events(), partial="a trace of tensors with their lifetimes")
