# SPDX-License-Identifier: Apache-2.0
"""Loading an artifact: its executable, of the kind that it needs."""

from __future__ import annotations

import copyreg
from pathlib import Path
from typing import Any

from memc.ir.checked_options import require
from memc.runtime.artifact.read import read_manifest
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.load_code import Loaded, open_artifact
from memc.runtime.execute.pickling import Parcel, folder_of, packed
from memc.runtime.execute.stateful import Stateful
from memc.runtime.execute.training import TrainingStep


def load(path: str | Path, *, cuda_graph: bool = True) -> Executable:
    """The executable of the artifact in folder `path`.

    Allocates its arena and loads its weights, once. One that updates states is `Stateful`, and a
    `TrainingStep` if they are more than a counter of runs. On CUDA, runs after the
    first are launched as one CUDA graph, unless `cuda_graph` is false. Raises InvalidError for a missing or damaged
    artifact, UnsupportedError if this machine cannot run it, and DeviceMemoryError if it does not fit in memory.
    """
    require(cuda_graph, bool, "cuda_graph")
    return executable_of(open_artifact(read_manifest(path), cuda_graph))


def executable_of(loaded: Loaded) -> Executable:
    """The executable of code that is loaded already, with an arena and weights of its own."""
    if not loaded.manifest.states:
        return Executable(loaded)
    return TrainingStep(loaded) if loaded.manifest.trains else Stateful(loaded)


def unpacked(parcel: Parcel) -> Executable:
    """An executable like the one that was packed. Raises InvalidError where its artifact is not found."""
    path, keeps = folder_of(parcel)
    executable = load(path, cuda_graph=parcel.cuda_graph)
    executable.keeps = keeps
    if isinstance(executable, Stateful):
        executable.load_state(parcel.state)
    if isinstance(executable, TrainingStep):
        executable.learning_rate = 0.01 if parcel.learning_rate is None else parcel.learning_rate
    return executable


def reduced(executable: Executable) -> tuple[Any, ...]:
    """What pickle stores: the artifact's path, or its files if its folder is a temporary one. Raises InvalidError if it is
    gone."""
    return unpacked, (packed(executable),)


copyreg.pickle(Executable, reduced)
copyreg.pickle(Stateful, reduced)
copyreg.pickle(TrainingStep, reduced)
