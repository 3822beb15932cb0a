# SPDX-License-Identifier: Apache-2.0
"""A script of PyTorch's, run in a process of its own on the phantom device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memc.estimation.gpus import Gpu
from memc.estimation.recording import Recording, recording_of
from memc.ir.errors import InvalidError, UsageError

from .assume import SKIPPED, Assume
from .failures import Refused, ScriptOutOfMemory, failure
from .process import Process
from .trace import Trace, assumptions, data_dependences, peaks, read_trace, reads_truth

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
    world_size: int = 1
    """Ranks of a distributed job."""
    rank: int = 0
    """Which of them the script is."""
    seconds: float = 600.0
    """After which a script without enough steps is given up."""
    assume: Assume = field(default_factory=Assume)
    """Where its data or the time of kernels decides."""

    def __post_init__(self) -> None:
        if not Path(self.path).is_file():
            raise InvalidError(f"{self.path}: cannot read: expected a file with a script")
        if not Path(self.path).read_bytes().strip():
            raise InvalidError(f"{self.path}: expected a script that trains or runs a model, got an empty file")
        if type(self.steps) is not int or not 0 <= self.steps <= 10**6:
            raise UsageError(f"steps: expected a whole number from 0 to 1000000, got {self.steps!r}")
        if type(self.world_size) is not int or not 1 <= self.world_size <= 2**20:
            raise UsageError(f"world_size: expected a whole number from 1 to {2**20}, got {self.world_size!r}")
        if type(self.rank) is not int or not 0 <= self.rank < self.world_size:
            raise UsageError(
                f"rank: expected a whole number from 0 to {self.world_size - 1}, of a world_size of {self.world_size}, got {self.rank!r}"
            )
        if not isinstance(self.seconds, (int, float)) or not 0 < self.seconds <= 10**7:
            raise UsageError(f"timeout: expected seconds above 0, got {self.seconds!r}")

    @property
    def gpus(self) -> int:
        """That the process sees: those of a machine with at most eight."""
        return min(self.world_size, 8)

    @property
    def config(self) -> dict[str, Any]:
        """What the process of the script is told."""
        settings = {} if self.alloc_conf is None else {"PYTORCH_CUDA_ALLOC_CONF": self.alloc_conf}
        return {
            "script": self.path,
            "arguments": list(self.arguments),
            "steps": self.steps,
            "assign": dict(self.assign),
            "environment": settings | dict(self.environment),
            "world_size": self.world_size,
            "rank": self.rank,
            **self.assume.config,
        }


def run_script(script: Script, gpu: Gpu, limit: int = UNLIMITED, show: bool = False) -> Recording:
    """The script's events, on a device with `limit` bytes. `show`: whether what it prints goes to stderr.

    Raises UsageError for a script that cannot be read, InvalidError for one that fails or takes no step, ScriptOutOfMemory for one that
    runs out of memory, UnsupportedError without a PyTorch that the phantom device knows, and for what that does not do.
    """
    with Process(script.python, gpu, show, script.gpus) as process:
        return run_in(process, script, limit)


@dataclass(frozen=True)
class Reading:
    """A script, with what is taken to be so, and its events."""

    script: Script
    recording: Recording
    bound: bool = False
    """Whether it is larger than what is likely, and only told of."""


def run_readings(process: Process, script: Script, limit: int = UNLIMITED) -> list[Reading]:
    """The script in a process that has PyTorch loaded; and again, with other outcomes of what nobody has computed or timed, where a
    gradient scaler skips steps, cudnn.benchmark takes engines, or the script reads a `torch.all`, which may be what ends its loop.

    Raises what `run_script` does, but not for a script that fails with the last.
    """
    began = time.monotonic()
    recording, result = _run(process, script, limit)
    seconds = min(script.seconds, 20 + 10 * (time.monotonic() - began))
    found = [Reading(script, recording)]
    known = script.assume
    if result["scaled"] and known.skipped is None:
        skipping = replace(script, assume=replace(known, skipped=SKIPPED))
        found.append(Reading(skipping, _run(process, skipping, limit)[0]))
    if result["benchmark"] and known.engines is None:
        largest = replace(script, assume=replace(known, engines="largest"))
        found.append(Reading(largest, _run(process, largest, UNLIMITED)[0], True))
    if result["alls"] and known.all is None:
        with_false = replace(script, assume=replace(known, all=False), seconds=seconds)
        try:
            found.append(Reading(with_false, _run(process, with_false, limit)[0]))
        except InvalidError as error:
            if isinstance(error, ScriptOutOfMemory):
                raise
            note = f"the script does not run where torch.all reads as false ({error})"
            found[0] = replace(found[0], recording=replace(recording, assumed=(*recording.assumed, note)))
    return found


def run_in(process: Process, script: Script, limit: int = UNLIMITED) -> Recording:
    """The same in a process that has PyTorch loaded, for one run after another."""
    return _run(process, script, limit)[0]


def _run(process: Process, script: Script, limit: int) -> tuple[Recording, dict[str, Any]]:
    """And what else the process said."""
    result, rows, names = process.run(script.path, script.config | {"limit": limit}, script.seconds)
    process.files.add(result.get("kept", ()), result.get("written", ()))
    trace = read_trace(rows, names, result["modules"]) if "stats" in result else None
    if result["error"] is not None:
        error = failure(script.path, process.installed, result["error"], data_dependences(trace.reads) if trace else ())
        if isinstance(error, ScriptOutOfMemory) and trace is not None:
            error.refused = _refused(trace, result["stats"])
        raise error
    if script.steps and not result["steps"]:
        raise InvalidError(
            f"{script.path}: expected at least one step of an optimizer, got none until the script's end; "
            "--steps 0 runs it to its end, as for inference"
        )
    if trace is None:
        raise InvalidError(
            f"{script.path}: expected tensors on the device `cuda`, got none; move the model and its inputs there"
        )
    result["alls"] = result["alls"] and reads_truth(trace.reads)
    counted = {} if result["peaks_were_reset"] else peaks(result["stats"])
    made = recording_of(script.path, trace.actions(), alloc_conf=result["settings"], peaks=counted)
    notes = assumptions(trace.reads, trace.ops, script.assume.nonzero or 0.0) + result["notes"]
    if script.alloc_conf is not None and result["settings"] != script.alloc_conf:
        notes.append(f"the script itself sets PYTORCH_CUDA_ALLOC_CONF to {result['settings']}, instead of --alloc-conf")
    if result["devices"] > 1:
        notes.append(f"blocks on {result['devices']} devices are counted together")
    notes += _outcomes(script.assume, result)
    if script.world_size > 1:
        notes.append(f"rank {script.rank} of {script.world_size}")
    if result["nccl"]:
        nbytes = f"{result['nccl']:,} bytes"
        notes.append(f"{nbytes} of NCCL are modelled: as for groups of one rank on an H200, without buffers for others")
    made = replace(
        made,
        outside=int(result["outside"]),
        nccl=int(result["nccl"]),
        places_known=False,
        assumed=tuple(notes),
        torch_version=process.installed.version,
    )
    return made, result


def _outcomes(known: Assume, result: Mapping[str, Any]) -> list[str]:
    """What was taken to be so."""
    notes = []
    if result["scaled"]:
        steps = f"{known.skipped} at first are" if known.skipped else "none is"
        notes.append(
            f"a gradient scaler skips steps whose gradients are not finite: {steps} taken to be such (--assume skipped=)"
        )
    if result["benchmark"]:
        taken = "those with the largest workspaces" if known.engines == "largest" else "the first"
        notes.append(
            f"cudnn.benchmark: which engines are the fastest is not known, and {taken} are taken (--assume engines=)"
        )
    if result["alls"]:
        notes.append(f"torch.all reads as {'false' if known.all is False else 'true'} (--assume all=)")
    return notes


def _refused(trace: Trace, stats: Mapping[str, int]) -> Refused | None:
    """The last request that was refused."""
    actions = trace.actions()
    at = max((at for at, action in enumerate(actions) if action.name == "oom"), default=-1)
    if at < 0:
        return None
    allocated, reserved = (int(stats[f"{name}_bytes.all.current"]) for name in ("allocated", "reserved"))
    return Refused(at, actions[at].origin, actions[at].nbytes, allocated, reserved)
