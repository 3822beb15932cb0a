# SPDX-License-Identifier: Apache-2.0
"""Plans as files, in JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from memc.ir.errors import CheckError, InvalidError
from memc.ir.files import read_bytes
from memc.ir.messages import shown

from .plan import ALIGNMENT, ReplayPlan
from .plan_check import check_plan
from .watched import StreamWait

FORMAT = "memc-replay-plan"
VERSION = 1

ROW = ("bytes", "stream", "thread", "offset", "freed")
"""Of each block; -1 as offset for one without a place, and as `freed` for one that was not seen to be freed."""

WAIT = ("recorded", "source", "waited", "target")

_KEYS = (
    *("format", "version", "torch", "device", "sequence", "alignment", "arena_bytes", "lower_bound", "solver"),
    *("rows", "first_pred", "preds", "waits", "digest"),
)


def plan_text(plan: ReplayPlan) -> str:
    """What `read_plan` reads."""
    table = np.stack([plan.nbytes, plan.streams, plan.threads, plan.offsets, plan.freed], axis=1)
    data: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "torch": plan.torch_version,
        "device": plan.device_kind,
        "sequence": plan.sequence_hash,
        "alignment": plan.alignment,
        "arena_bytes": plan.arena_bytes,
        "lower_bound": plan.lower_bound,
        "solver": plan.solver,
        "rows": table.tolist(),
        "first_pred": plan.first_pred.tolist(),
        "preds": plan.preds.tolist(),
        "waits": [[wait.recorded, wait.source, wait.waited, wait.target] for wait in plan.waits],
    }
    return json.dumps(data | {"digest": _digest(data)}, separators=(",", ":")) + "\n"


def write_plan(plan: ReplayPlan, path: str | Path) -> None:
    """Raises InvalidError where the file cannot be written."""
    try:
        Path(path).write_text(plan_text(plan), encoding="utf-8")
    except OSError as error:
        raise InvalidError(
            f"{path}: cannot write: {error.strerror}; expected a path in a folder that is there"
        ) from None


def read_plan(
    path: str | Path,
    *,
    torch_version: str | None = None,
    device_kind: str | None = None,
    sequence: str | None = None,
    alignment: int = ALIGNMENT,
) -> ReplayPlan:
    """The plan of a file, checked as if it had just been made.

    Args:
        torch_version, device_kind, sequence: what the plan must be for, where they are given; a plan that does not say its
            version or device is for any.
        alignment: bytes, of which the plan's must be a multiple.

    Raises InvalidError for a file that cannot be read, is of another format or version, is for something else, or is damaged.
    """
    data = _parsed(path, read_bytes(path))
    _refuse_others(path, data, torch_version, device_kind, alignment)
    plan = _plan(path, data)
    for what, found, expected in (
        ("sequence", data["sequence"], plan.sequence_hash),
        ("digest", data["digest"], _digest({key: data[key] for key in _KEYS[:-1]})),
    ):
        if found != expected:
            raise InvalidError(f"{path}: {what}: expected {expected} of its content, got {shown(found)}; {_AGAIN}")
    try:
        check_plan(plan)
    except (CheckError, InvalidError, OverflowError, ValueError) as error:
        raise InvalidError(f"{path}: {error}; {_AGAIN}") from None
    if sequence is not None and sequence != plan.sequence_hash:
        raise InvalidError(
            f"{path}: sequence: expected a plan for the requests {sequence}, got one for {plan.sequence_hash}; {_AGAIN}"
        )
    return plan


_AGAIN = "make the plan again (memc estimate --plan)"


def _parsed(path: str | Path, raw: bytes) -> dict[str, Any]:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{path}: expected a plan in JSON, got: {error}; {_AGAIN}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else data
        raise InvalidError(f"{path}: format: expected {FORMAT}, got {shown(found)}; {_AGAIN}")
    if data.get("version") != VERSION or type(data["version"]) is not int:
        raise InvalidError(f"{path}: version: expected {VERSION}, got {shown(data.get('version'))}; {_AGAIN}")
    if wrong := sorted(set(data) ^ set(_KEYS)):
        raise InvalidError(f"{path}: expected the keys {', '.join(_KEYS)}, got others: {shown(wrong[0])}; {_AGAIN}")
    return data


def _refuse_others(
    path: str | Path, data: dict[str, Any], torch_version: str | None, device_kind: str | None, alignment: int
) -> None:
    for key, expected in (("torch", torch_version), ("device", device_kind)):
        if not isinstance(data[key], str):
            raise InvalidError(f"{path}: {key}: expected text, got {shown(data[key])}; {_AGAIN}")
        if expected is not None and data[key] not in ("", expected):
            raise InvalidError(f"{path}: {key}: expected a plan for {expected}, got one for {data[key]}; {_AGAIN}")
    found = data["alignment"]
    if type(found) is not int or not 0 < found <= 2**40 or found % alignment:
        raise InvalidError(f"{path}: alignment: expected a multiple of {alignment} bytes, got {shown(found)}; {_AGAIN}")


def _plan(path: str | Path, data: dict[str, Any]) -> ReplayPlan:
    rows = _table(path, "rows", data["rows"], len(ROW))
    if not isinstance(data["solver"], str):
        raise InvalidError(f"{path}: solver: expected text, got {shown(data['solver'])}; {_AGAIN}")
    nbytes, streams, threads, offsets, freed = (np.ascontiguousarray(column) for column in rows.T)
    return ReplayPlan(
        nbytes=nbytes,
        streams=streams,
        threads=threads,
        freed=freed,
        offsets=offsets,
        first_pred=_column(path, "first_pred", data["first_pred"]),
        preds=_column(path, "preds", data["preds"]),
        arena_bytes=int(_column(path, "arena_bytes", [data["arena_bytes"]])[0]),
        lower_bound=int(_column(path, "lower_bound", [data["lower_bound"]])[0]),
        solver=data["solver"],
        seconds=0.0,
        alignment=data["alignment"],
        torch_version=data["torch"],
        device_kind=data["device"],
        waits=tuple(StreamWait(*row) for row in _table(path, "waits", data["waits"], len(WAIT)).tolist()),
    )


def _table(path: str | Path, name: str, rows: object, width: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not isinstance(rows, list):
        raise InvalidError(f"{path}: {name}: expected a list, got {shown(rows)}; {_AGAIN}")
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width:
            raise InvalidError(f"{path}: {name}: {at}: expected {width} numbers, got {shown(row)}; {_AGAIN}")
    return _column(path, name, [number for row in rows for number in row]).reshape(-1, width)


def _column(path: str | Path, name: str, numbers: object) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not isinstance(numbers, list):
        raise InvalidError(f"{path}: {name}: expected a list of numbers, got {shown(numbers)}; {_AGAIN}")
    for at, number in enumerate(numbers):
        if type(number) is not int or not -1 <= number < 2**62:
            raise InvalidError(f"{path}: {name}: {at}: expected -1 to 2^62, got {shown(number)}; {_AGAIN}")
    return np.array(numbers, np.int64)


def _digest(data: dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
