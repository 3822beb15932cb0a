# SPDX-License-Identifier: Apache-2.0
"""Executables in a forked child: on the CPU they run there, or refuse at once; on CUDA, which does not survive a fork, they
refuse."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import TYPE_CHECKING

from memc.ir.errors import UsageError

if TYPE_CHECKING:
    from memc.runtime.artifact.manifest import Manifest
    from memc.runtime.execute.executable import Executable

_alive: weakref.WeakSet[Executable] = weakref.WeakSet()

HOW = "use the start method spawn or forkserver of multiprocessing, or load the artifact in the child alone"


class _Process:
    """What this process is: whether it has used CUDA, and whether it is the child of one that had."""

    has_cuda = False
    lost_cuda = False


def watch(executable: Executable) -> None:
    """Have the executable know it when it is in a forked child."""
    _alive.add(executable)
    _Process.has_cuda |= executable.manifest.kind == "cuda"


def require_device(manifest: Manifest) -> None:
    """Raise UsageError for a CUDA artifact in the forked child of a process that ran such ones."""
    if manifest.kind == "cuda" and _Process.lost_cuda:
        raise UsageError(
            f"{manifest.path}: this process was forked from one that used CUDA, which cannot go on here; {HOW}"
        )


def _after_fork() -> None:
    """Release locks in the child, where a run of another thread has no end and its lock would stay."""
    _Process.lost_cuda |= _Process.has_cuda
    for executable in list(_alive):
        torn = executable.running.locked()
        executable.running = threading.Lock()
        executable.refusal = _refusal(executable, torn)
        if executable.manifest.kind == "cuda":  # To free its memory here would end the process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(executable))


def _refusal(executable: Executable, torn: bool) -> str:
    """Why an executable of the parent cannot run in the child; empty if it can."""
    path = executable.manifest.path
    if executable.manifest.kind == "cuda":
        return f"{path}: was loaded before this process was forked, and CUDA cannot go on here; {HOW}"
    if not executable.loaded.has_native:
        return f"{path}: was loaded before this process was forked, and TVM's threads are not here; {HOW}"
    if torn and executable.manifest.states:
        return f"{path}: was in the middle of a step when this process was forked; {HOW}"
    return ""


os.register_at_fork(after_in_child=_after_fork)
