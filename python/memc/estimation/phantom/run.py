# SPDX-License-Identifier: Apache-2.0
"""A script of PyTorch's, run in a process of its own on the phantom device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memc.estimation.gpus import Gpu
from memc.estimation.recording import Recording, recording_of
from memc.ir.errors import InvalidError, UnsupportedError, UsageError

from .build import libraries
from .description import description
from .failures import failure
from .installation import Installation, find_installation
from .trace import assumptions, peaks, read_trace

CHILD = Path(__file__).parent / "child/run_script.py"

UNLIMITED = 2**45
"""Bytes of memory with which no job runs out."""


@dataclass(frozen=True)
class Script:
    """What is run, and how."""

    path: str
    arguments: Sequence[str] = ()
    steps: int = 3
    """Of an optimizer, after which the process ends; 0: the script's own end."""
    python: str | None = None
    """The interpreter with PyTorch; None for that of MEMC_PHANTOM_PYTHON, or the one that runs memc."""
    alloc_conf: str | None = None
    assign: Mapping[str, int] = field(default_factory=dict)
    """Values that names at the script's top level get instead of its own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 1800.0
    """After which a script without enough steps is given up."""
    show: bool = False
    """Whether what the script prints goes to stderr."""


def run_script(script: Script, gpu: Gpu, limit: int = UNLIMITED) -> Recording:
    """The script's events, of a device with `limit` bytes.

    Raises UsageError for a script that cannot be read, InvalidError for one that fails or takes no step, UnsupportedError without a
    PyTorch that the phantom device knows, and for what it does not do.
    """
    if not Path(script.path).is_file():
        raise UsageError(f"{script.path}: cannot read: expected a file with a script")
    installed = find_installation(script.python)
    with tempfile.TemporaryDirectory(prefix="memc-phantom-") as place:
        folder = Path(place)
        result = _run(script, installed, folder, description(gpu, limit))
        trace = read_trace(folder / "rows", folder / "names", result["modules"])
    counted = {} if result["peaks_were_reset"] else peaks(result["stats"])
    made = recording_of(script.path, trace.actions(), alloc_conf=result["settings"], peaks=counted)
    return replace(made, outside=int(result["outside"]), places_known=False, assumed=tuple(assumptions(trace.reads)))


def _run(script: Script, installed: Installation, folder: Path, device: str) -> dict[str, Any]:
    """What the process wrote. Raises what `run_script` does."""
    built = libraries(installed)
    (folder / "device").write_text(device)
    config = {
        "script": script.path,
        "arguments": list(script.arguments),
        "steps": script.steps,
        "assign": dict(script.assign),
        "tracker": str(built.tracker),
    } | {name: str(folder / name) for name in ("rows", "names", "result")}
    (folder / "config").write_text(json.dumps(config))
    environment = {name: value for name, value in os.environ.items() if name not in _DEVICE_VARIABLES}
    environment |= {
        "LD_PRELOAD": ":".join(filter(None, [built.preload, os.environ.get("LD_PRELOAD", "")])),
        "MEMC_PHANTOM_DEVICE": str(folder / "device"),
        "MEMC_PHANTOM_ERROR": str(folder / "refused"),
        **({} if script.alloc_conf is None else {"PYTORCH_CUDA_ALLOC_CONF": script.alloc_conf}),
        **script.environment,
    }
    with open(folder / "output", "wb") as output:
        printed = None if script.show else output
        process = subprocess.Popen(
            [installed.python, str(CHILD), str(folder / "config")],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=2 if script.show else printed,
            stderr=None if script.show else subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(process, script)
    if (folder / "refused").is_file():
        raise UnsupportedError(f"{script.path}: {(folder / 'refused').read_text().strip()}")
    if not (folder / "result").is_file():
        raise InvalidError(f"{script.path}: {_ending(code, folder / 'output')}")
    result: dict[str, Any] = json.loads((folder / "result").read_text())
    if result["error"] is not None:
        raise failure(script.path, installed, result["error"])
    if script.steps and not result["steps"]:
        raise InvalidError(
            f"{script.path}: expected at least one step of an optimizer, got none until the script's end; "
            "--steps 0 runs it to its end, as for inference"
        )
    if "stats" not in result:
        raise InvalidError(f"{script.path}: expected tensors on the device `cuda`, got none; move the model and its inputs there")
    return result


_DEVICE_VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES", "PYTORCH_NO_CUDA_MEMORY_CACHING"})
"""Of the environment that would hide the phantom device, or its allocator."""


def _wait(process: subprocess.Popen[bytes], script: Script) -> int:
    """The exit code. What the script has started ends with it."""
    try:
        return process.wait(script.seconds)
    except subprocess.TimeoutExpired:
        raise InvalidError(
            f"{script.path}: expected {script.steps} steps of an optimizer within {script.seconds:.0f} s, got fewer; "
            "make its data smaller, or ask for fewer with --steps"
        ) from None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()


def _ending(code: int, output: Path) -> str:
    """How a process ended that wrote no result."""
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1][:200]}" if lines else ""
    if code < 0:
        return f"the script's process ended with signal {-code} on the phantom device{last}"
    return f"the script's process ended with code {code} before it took enough steps{last}"
