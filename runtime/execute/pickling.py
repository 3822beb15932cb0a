# SPDX-License-Identifier: Apache-2.0
"""Executables on their way to another process: as the artifact's path, or as its files if its folder is a temporary one.

A training step's state travels along, an arena does not. On CUDA the other process takes its own first device.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from memc.ir.errors import InvalidError
from memc.runtime.artifact.manifest import PLAN
from memc.runtime.artifact.plan_text import checksum
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.stateful import Stateful
from memc.runtime.execute.training import TrainingStep


@dataclass(frozen=True)
class Parcel:
    """What an executable is pickled as."""

    path: Path
    plan: str
    """The checksum of plan.json."""
    cuda_graph: bool
    files: dict[str, bytes] = field(default_factory=dict)
    """The files of a temporary folder, by name; empty where the folder stays."""
    state: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    """The state of a training step."""
    learning_rate: float | None = None


def packed(executable: Executable) -> Parcel:
    """An executable as it is now. Raises InvalidError if its folder is gone or holds another artifact."""
    path = executable.manifest.path.resolve()
    files: dict[str, bytes] = {}
    plan = _plan(path)
    if plan != executable.manifest.plan_checksum:
        raise InvalidError(f"{path}: cannot be pickled: the folder holds another artifact than the one that was loaded")
    if executable.keeps is not None:
        files = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    parcel = Parcel(path, plan, executable.loaded.cuda_graph, files)
    if isinstance(executable, Stateful):
        rate = executable.learning_rate if isinstance(executable, TrainingStep) else None
        return Parcel(path, plan, parcel.cuda_graph, files, executable.state(), rate)
    return parcel


def folder_of(parcel: Parcel) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    """The artifact's folder, and what keeps it there if it travelled. Raises InvalidError if it is not found."""
    if not parcel.files:
        if _plan(parcel.path) != parcel.plan:
            raise InvalidError(
                f"{parcel.path}: cannot be unpickled: the folder holds another artifact than the one that was pickled"
            )
        return parcel.path, None
    keeps = tempfile.TemporaryDirectory(prefix="memc-")
    path = Path(keeps.name) / parcel.path.name
    path.mkdir()
    for name, data in parcel.files.items():
        (path / name).write_bytes(data)
    return path, keeps


def _plan(path: Path) -> str:
    """The checksum of an artifact's plan. Raises InvalidError if there is none."""
    try:
        return checksum((path / PLAN).read_bytes())
    except OSError as error:
        raise InvalidError(f"{path}: the artifact cannot be read: {error.strerror or error}") from None
