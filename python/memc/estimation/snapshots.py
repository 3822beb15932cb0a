# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots of PyTorch, the pickles of `torch.cuda.memory._dump_snapshot`, read without running code of theirs."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from memc.ir.errors import InvalidError, UsageError
from memc.ir.files import read_bytes
from memc.ir.messages import shown

from .events import Origin
from .recording import MOST_ADDRESS, MOST_BYTES, Action, Recording, known_name, recording_of, whole_number

UNKNOWN, MOST_UNKNOWN = 2**56, 2**40
"""The address given to the first segment that has none, beyond all memory, and bytes from there to the next segment's."""


class _PlainValues(pickle.Unpickler):
    """Reads lists, dicts, tuples, numbers and text. Whatever names a class or a function is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which may run code")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside itself")


@dataclass(frozen=True)
class History:
    """What a snapshot tells of one device."""

    device: int
    before: list[Action]
    """Blocks that were live before the first event, as the snapshot's segments and the events themselves tell."""
    actions: list[Action]
    """The events, in order."""
    settings: str
    """The allocator's."""


def read_snapshot(path: str | Path, device: int | None = None) -> Recording:
    """The events of a snapshot's device, by default of the only one with any. A history that began late is put after the blocks that were
    live before it. Raises what `read_history` raises."""
    history = read_history(path, device)
    began_late = any(action.name == "alloc" for action in history.before)
    partial = ""
    if began_late or not history.actions:
        partial = f"the history begins with {len(history.before)} blocks in use, whose order is not known"
    return recording_of(str(path), history.actions, before=history.before, partial=partial, alloc_conf=history.settings)


def read_history(path: str | Path, device: int | None = None) -> History:
    """What a snapshot tells of a device, by default of the only one with any events or memory.

    Raises UsageError for a device that is not there, InvalidError for a file that cannot be read or is no snapshot.
    """
    data = _plain(path)
    if isinstance(data, list) and data and all(isinstance(each, dict) and "blocks" in each for each in data):
        data = {"segments": data}  # Of `torch.cuda.memory_snapshot`, which is the segments alone.
    if not isinstance(data, dict) or "segments" not in data:
        raise InvalidError(f"{path}: expected a memory snapshot of PyTorch, with `segments` and `device_traces`")
    data = {"device_traces": [], **data}
    device = _device(path, data, device)
    entries = data["device_traces"][device] if device < len(data["device_traces"]) else []
    actions = [_action(f"{path}: event {at}", entry) for at, entry in enumerate(entries)]
    before = list(_live_before(path, data, device, actions))
    return History(device, before, actions, _settings(data))


def _plain(path: str | Path) -> Any:
    raw = read_bytes(path)
    try:
        return _PlainValues(io.BytesIO(raw)).load()
    except pickle.UnpicklingError as error:
        raise InvalidError(
            f"{path}: expected a memory snapshot of plain values, got a pickle that is none: {error}"
        ) from None
    except Exception as error:  # A damaged pickle raises whatever its opcodes run into.
        what = f"{type(error).__name__}: {error}"
        raise InvalidError(f"{path}: expected a memory snapshot, got a damaged pickle: {shown(what)}") from None


def _device(path: str | Path, data: Mapping[str, Any], device: int | None) -> int:
    traces, segments = data["device_traces"], data["segments"]
    for name, value in (("device_traces", traces), ("segments", segments)):
        if not isinstance(value, list):
            raise InvalidError(f"{path}: {name}: expected a list, got {shown(value)}")
    if not all(isinstance(trace, list) for trace in traces) or not all(isinstance(each, dict) for each in segments):
        raise InvalidError(f"{path}: expected lists of events in `device_traces`, and objects in `segments`")
    used = sorted({at for at, trace in enumerate(traces) if trace} | {_owner(path, each) for each in segments})
    if device is None and len(used) == 1:
        return used[0]
    if not used or device not in used:
        there = ", ".join(map(str, used)) or "none"
        got = "no choice" if device is None else str(device)
        raise UsageError(f"{path}: device: expected one of those with events or memory ({there}), got {got}")
    return device


def _owner(path: str | Path, segment: Mapping[str, Any]) -> int:
    return whole_number(segment.get("device", 0), 0, 1024, f"{path}: segments: device")


def _pool(value: object) -> int:
    """Private pools have two numbers; those of the default one are 0."""
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(type(part) is int for part in value):
        first, second = value
        return int((first * 1_000_003 + second) % 2**31) if first or second else 0
    return 0


def _action(where: str, entry: object) -> Action:
    if not isinstance(entry, dict):
        raise InvalidError(f"{where}: expected an object, got {shown(entry)}")
    name = known_name(entry.get("action"), where)
    if name == "oom":
        return Action(name, 0, whole_number(entry.get("size"), 0, MOST_BYTES, f"{where}: size"), 0)
    if name in ("snapshot", "user_defined"):
        return Action(name, 0, 0, 0)
    address = whole_number(entry.get("addr", entry.get("address")), 0, 2**64 - 1, f"{where}: addr") & MOST_ADDRESS
    nbytes = whole_number(entry.get("size"), 0, MOST_BYTES, f"{where}: size")
    stream = whole_number(entry.get("stream", 0), 0, MOST_ADDRESS, f"{where}: stream")
    pool = _pool(entry.get("segment_pool_id", entry.get("pool_id")))
    return Action(name, address, nbytes, stream, pool, _origin(entry.get("frames")))


def _origin(frames: object) -> Origin | None:
    """The innermost place in Python of a request's call stack."""
    for frame in frames if isinstance(frames, list) else ():
        if isinstance(frame, dict) and str(frame.get("filename", "")).endswith(".py"):
            place = f"{Path(str(frame['filename'])).name}:{frame.get('line', 0)}"
            return Origin(op=f"{frame.get('name', '')} at {place}")
    return None


def _live_before(path: str | Path, data: Mapping[str, Any], device: int, actions: list[Action]) -> Iterator[Action]:
    """The blocks that were live before the first event, in order of address: those in use at the end that no event made, and those
    that an event frees before any makes one at the address."""
    made: set[int] = set()
    freed: dict[int, Action] = {}
    for action in actions:
        if action.name == "alloc":
            made.add(action.address)
        elif action.name in ("free", "free_requested") and action.address not in made and action.address not in freed:
            freed[action.address] = action
    found = {address: Action("alloc", address, each.nbytes, each.stream, each.pool) for address, each in freed.items()}
    own = [each for each in data["segments"] if _owner(path, each) == device]
    for number, segment in enumerate(own):
        for block in _blocks(path, segment, UNKNOWN + number * MOST_UNKNOWN):
            address = block.address
            if address not in made and address not in freed:
                found[address] = block
    yield from (found[address] for address in sorted(found))


def _blocks(path: str | Path, segment: Mapping[str, Any], unknown: int) -> Iterator[Action]:
    """The blocks of a segment that are in use. A block without an address follows the one before; `unknown`: where the first of a
    segment without one lies."""
    stream = whole_number(segment.get("stream", 0), 0, MOST_ADDRESS, f"{path}: segments: stream")
    at = whole_number(segment.get("address", unknown), 0, 2**64 - 1, f"{path}: segments: address") & MOST_ADDRESS
    where = f"{path}: segments: blocks"
    if not isinstance(blocks := segment.get("blocks", []), list):
        raise InvalidError(f"{where}: expected a list, got {shown(blocks)}")
    for block in blocks:
        if not isinstance(block, dict):
            raise InvalidError(f"{where}: expected objects, got {shown(block)}")
        size = whole_number(block.get("size"), 0, MOST_BYTES, f"{where}: size")
        asked = whole_number(
            block.get("requested_size", _earlier_size(block, size)), 0, MOST_BYTES, f"{where}: requested_size"
        )
        at = whole_number(block.get("address", at), 0, 2**64 - 1, f"{where}: address") & MOST_ADDRESS
        if block.get("state") != "inactive":
            yield Action("alloc", at, asked, stream)
        at += size


def _earlier_size(block: Mapping[str, Any], size: int) -> Any:
    """Bytes asked for as PyTorch 2.0 and earlier tell them, in the block's history; else the block's own."""
    history = block.get("history")
    last = history[-1] if isinstance(history, list) and history else None
    return last.get("real_size", size) if isinstance(last, dict) else size


def _settings(data: Mapping[str, Any]) -> str:
    """The allocator's settings at the time."""
    settings = data.get("allocator_settings")
    text = settings.get("PYTORCH_CUDA_ALLOC_CONF", "") if isinstance(settings, dict) else ""
    if not isinstance(text, str):
        text = ""
    if not text and isinstance(settings, dict) and settings.get("expandable_segments") is True:
        return "expandable_segments:True"
    return text
