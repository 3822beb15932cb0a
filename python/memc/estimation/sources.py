# SPDX-License-Identifier: Apache-2.0
"""What `memc estimate` reads, by the names of files."""

from __future__ import annotations

from pathlib import Path

from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.ir.files import read_bytes
from memc.ir.messages import shown

from .event_files import read_json, read_trace
from .events import Events
from .recording import Recording
from .snapshots import read_snapshot

KINDS = (
    ".py (a script of PyTorch's), .json[.gz] (recorded events), .pickle or .pkl (a memory snapshot of PyTorch), .csv (a trace), .onnx (a model) or an "
    "artifact's folder"
)


def is_artifact(path: str | Path) -> bool:
    """Whether the path is one of an artifact: a folder, or a name as they have."""
    return Path(path).is_dir() or str(path).endswith(".memc")


def is_model(path: str | Path | Events | Recording) -> bool:
    """Whether the path is one of an ONNX model."""
    return isinstance(path, (str, Path)) and str(path).endswith(".onnx")


def read_source(source: str | Path | Events | Recording, device: int | None) -> tuple[str, Recording]:
    """What messages call the source, and what it holds. Raises UsageError, InvalidError or UnsupportedError."""
    if isinstance(source, Events):
        return "events", Recording(source)
    if isinstance(source, Recording):
        return "events", source
    if not isinstance(source, (str, Path)):
        raise UsageError(f"source: expected a path or events, got {shown(source)}")
    name = str(source)
    if name.endswith((".pickle", ".pkl")):
        return name, read_snapshot(source, device)
    if device is not None:
        raise UsageError(f"{name}: device: expected it with a memory snapshot alone")
    if name.endswith((".json", ".json.gz")):
        found = read_json(source)
    elif name.endswith(".csv"):
        found = read_trace(source)
    else:
        read_bytes(source)  # What is not there is said to be so.
        raise UnsupportedError(f"{name}: expected {KINDS}")
    if not len(found.events):
        raise InvalidError(f"{name}: expected at least one event, got none")
    return name, found
