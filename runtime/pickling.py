# SPDX-License-Identifier: Apache-2.0
"""Executables on their way to another process: as the artifact's path, or as its files if its folder is a temporary one.

A training step's state travels along, an arena does not. On CUDA the other process takes its own first device.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from memc.ir.errors import InvalidError
from memc.runtime.manifest import PLAN
from memc.runtime.plan_text import checksum

if TYPE_CHECKING:
    from memc.runtime.executable import Executable


@dataclass(frozen=True)
class Parcel:
    """What an executable is pickled as."""

    path: Path
    plan: str
    """The checksum of plan.json."""
    cuda_graph: bool
    files: dict[str, bytes] = field(default_factory=dict)
    """Of a temporary folder, by name; empty where the folder stays."""
    state: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Of a training step."""
    learning_rate: float | None = None


def packed(executable: Executable) -> Parcel:
    """An executable as it is now. Raises InvalidError if its folder is gone or holds another artifact."""
    from memc.runtime.training import TrainingStep

    path = executable.manifest.path.resolve()
    files: dict[str, bytes] = {}
    plan = _plan(path)
    if plan != executable.manifest.plan_checksum:
        raise InvalidError(f"{path}: cannot be pickled: the folder holds another artifact than the one that was loaded")
    if executable.keeps is not None:
        files = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    parcel = Parcel(path, plan, executable.loaded.cuda_graph, files)
    if isinstance(executable, TrainingStep):
        return Parcel(path, plan, parcel.cuda_graph, files, executable.state(), executable.learning_rate)
    return parcel


def unpacked(parcel: Parcel) -> Executable:
    """An executable like the one that was packed. Raises InvalidError where its artifact is not found."""
    from memc.runtime.executable import load
    from memc.runtime.training import TrainingStep

    path, keeps = parcel.path, None
    if parcel.files:
        keeps = tempfile.TemporaryDirectory(prefix="memc-")
        path = Path(keeps.name) / parcel.path.name
        path.mkdir()
        for name, data in parcel.files.items():
            (path / name).write_bytes(data)
    elif _plan(path) != parcel.plan:
        raise InvalidError(
            f"{path}: cannot be unpickled: the folder holds another artifact than the one that was pickled"
        )
    executable = load(path, cuda_graph=parcel.cuda_graph)
    executable.keeps = keeps
    if isinstance(executable, TrainingStep):
        executable.load_state(parcel.state)
        executable.learning_rate = 0.01 if parcel.learning_rate is None else parcel.learning_rate
    return executable


def _plan(path: Path) -> str:
    """The checksum of an artifact's plan. Raises InvalidError if there is none."""
    try:
        return checksum((path / PLAN).read_bytes())
    except OSError as error:
        raise InvalidError(f"{path}: the artifact cannot be read: {error.strerror or error}") from None
