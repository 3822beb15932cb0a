# SPDX-License-Identifier: Apache-2.0
"""Scripts of PyTorch's as jobs, and the largest batch of one that fits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from memc.ir.errors import InvalidError, UsageError
from memc.ir.messages import shown

from .allocators import Allocator
from .events import Events
from .gpus import DEFAULT, Gpu
from .models import MOST_BATCH, largest
from .phantom import Process, Reading, Refused, Script, ScriptOutOfMemory, run_in, run_readings
from .recording import Recording
from .replay import Job, Taken, replay


def is_script(source: str | Path | Events | Recording) -> bool:
    """Whether the source is a script, which is run."""
    return isinstance(source, (str, Path)) and str(source).endswith(".py")


@dataclass(frozen=True)
class ScriptJob:
    """A script that was run on the phantom device."""

    job: Job
    batch: int | None
    """The largest that fits, 0 if none does; None if none was asked for."""
    taken: Taken
    refused: Refused | None = None
    """The request for which the memory given did not suffice, where the script was run in it."""


def script_job(
    script: Script,
    batches: tuple[str, int, int] | None,
    gpu: Gpu | None,
    memory: int | None,
    allocator: Allocator | None,
    show: bool = False,
) -> ScriptJob:
    """The script's job, and what the allocator takes; with `batches`, the name, least and most of a number, that of the largest that fits.

    A job that does not fit by its events is run once more in the memory given: cuDNN may do with less, or the script.
    Raises what `run_script` does, and UsageError for batches without a limit of memory.
    """
    changed = allocator is not None
    with Process(script.python, gpu or DEFAULT, show, script.gpus) as process, _told(process, script.path):
        batch = None
        if batches is not None:
            if memory is None:
                raise UsageError("find_batch: expected memory or gpu with it, into which the batch is to fit")
            name, least, most = batches
            if not 0 < least <= most <= MOST_BATCH:
                raise UsageError(
                    f"find_batch: `{name}`: expected a range within 1 to {MOST_BATCH}, got {least} to {most}"
                )
            found = largest(lambda size: _fits(process, with_number(script, name, size), memory), least, most)
            script = with_number(script, name, found or least)
            batch = found or 0
        readings = run_readings(process, script)
        script, taken = _largest_taken(
            readings, Job(script.path, readings[0].recording, gpu or DEFAULT, gpu is not None, memory), allocator
        )
        job = taken.job
        if taken.limited is None or taken.limited.failed < 0 or changed or memory is None:
            return ScriptJob(job, batch, taken)
        try:
            recording = run_in(process, script, memory)
        except ScriptOutOfMemory as error:
            return ScriptJob(job, batch, taken, error.refused)
    other = replay(replace(job, recording=recording), None, False)
    note = "in the memory given the job asks for other blocks, with which it fits"
    fits = other.limited if other.limited is not None and other.limited.failed < 0 else other.free
    return ScriptJob(job, batch, replace(taken, limited=fits, assumed=(*taken.assumed, note)))


def _largest_taken(readings: Sequence[Reading], job: Job, allocator: Allocator | None) -> tuple[Script, Taken]:
    """The reading of a script that reserves the most, of those that do not fit if there are any, and how the others differ."""
    found: list[tuple[Script, Taken]] = []
    bounds: list[tuple[Script, Taken]] = []
    for each in readings:
        notes = (*each.recording.assumed, *_of_gpu(job.gpu if job.gpu_named else None))
        own = replace(job, recording=replace(each.recording, assumed=notes))
        (bounds if each.bound else found).append((each.script, replay(own, allocator, allocator is not None)))
    failing = [each for each in found if each[1].limited is not None and each[1].limited.failed >= 0]
    script, taken = max(failing or found, key=lambda each: each[1].free.reserved.peak)
    sizes = [each.free.reserved.peak for _, each in found]
    notes = taken.assumed
    if min(sizes) < max(sizes):
        notes = (*notes, f"with another outcome of that {min(sizes):,} to {max(sizes):,} bytes are reserved")
    for _, bound in bounds:
        most = f"{bound.free.reserved.peak:,} bytes are reserved"
        notes = (*notes, f"with the largest workspaces of cuDNN's engines {most}")
    return script, replace(taken, assumed=notes)


def _of_gpu(gpu: Gpu | None) -> list[str]:
    """What is assumed as the script sees a GPU of which not all is known."""
    if gpu is None:
        return [f"the script sees an {DEFAULT.name}, as no --gpu is named"]
    if gpu.from_data_sheet:
        return [f"engines of cuDNN as it chooses them by the data sheet of the {gpu.name}"]
    return []


@contextmanager
def _told(process: Process, path: str) -> Iterator[None]:
    """Say at the end what became of files."""
    try:
        yield
    finally:
        process.files.tell(path)


def _fits(process: Process, script: Script, memory: int) -> bool:
    try:
        run_readings(process, script, memory)
    except ScriptOutOfMemory:
        return False
    return True


def with_number(script: Script, name: str, value: int) -> Script:
    """The script with a number of its own: an option if the name has a dash, else what its top level assigns, or a variable of the
    environment that it reads.

    Raises UsageError if it does neither.
    """
    if name.startswith("-"):
        return replace(script, arguments=[*script.arguments, name, str(value)])
    try:
        source = Path(script.path).read_bytes()  # Whose encoding its first lines may say.
        body = ast.parse(source, script.path).body
    except (OSError, ValueError, SyntaxError) as error:
        raise InvalidError(f"{script.path}: cannot be read as Python: {shown(str(error))}") from None
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return replace(script, assign={**script.assign, name: value})
    text = source.decode(errors="replace")
    if "environ" in text and name in text or "getenv" in text and name in text:
        return replace(script, environment={**script.environment, name: str(value)})
    raise UsageError(
        f"{script.path}: find_batch: expected a name that the script assigns at its top level, or reads of the environment, got {name}; "
        f"an option of the script is given with its dashes: --find-batch --{name.lower().replace('_', '-')}=LEAST..MOST"
    )
